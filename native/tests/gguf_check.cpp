// Damaged model files: whatever happens to a file, loading it either fails with an error that names
// the file and the place, or gives a model; never a crash, an out-of-bounds read (build with
// AddressSanitizer) or an allocation beyond the file's size + 64 MB.
//
//     gguf_check                      a small model made here, a sample of the damages
//     gguf_check [--exhaustive] FILE  any model file; every damage
//
// Damages: the file cut at every structural boundary and at other places; one byte of the header
// changed; several fields of the header replaced by extreme values.
//
// A change in magic, version, counts, types, sizes, offsets, tensor names or the names of required
// keys must be refused or harmless, that is, give exactly the model of the undamaged file.
#include <cstdio>
#include <fstream>
#include <new>
#include <random>
#include <set>
#include <type_traits>

#include "gguf_builder.h"

namespace {
size_t allocated = 0;  // by operator new, since last set to 0
}

void* operator new(size_t size) {
    allocated += size;
    if (void* memory = std::malloc(size + !size)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

namespace oj::test {
namespace {

constexpr char kPath[] = "dir/damaged.gguf";
constexpr size_t kAllowedBeyondFile = 64 << 20;

const std::set<std::string_view> kRequiredKeys = {
    "general.architecture",        "qwen35.block_count",
    "qwen35.context_length",       "qwen35.embedding_length",
    "qwen35.feed_forward_length",  "qwen35.attention.head_count",
    "qwen35.attention.key_length", "qwen35.attention.layer_norm_rms_epsilon",
    "qwen35.rope.dimension_count", "qwen35.rope.dimension_sections",
    "qwen35.rope.freq_base",       "qwen35.ssm.conv_kernel",
    "qwen35.ssm.inner_size",       "qwen35.ssm.state_size",
    "qwen35.ssm.time_step_rank",   "qwen35.ssm.group_count",
    "tokenizer.ggml.model",        "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",       "tokenizer.ggml.token_type",
    "tokenizer.ggml.merges",       "tokenizer.ggml.eos_token_id",
};

// A piece of the header. A change to a guarded one must be refused or harmless.
struct Field {
    std::string what;
    size_t begin;
    size_t end;
    bool guarded;
};

std::vector<Field> header_fields(const GgufFile& file, const uint8_t* base) {
    std::vector<Field> fields = {
        {"magic", 0, 4, true},
        {"version", 4, 8, true},
        {"tensor count", 8, 16, true},
        {"key count", 16, 24, true},
    };
    const auto add = [&](std::string_view name, const char* part, size_t size, bool guarded) {
        const size_t begin = fields.back().end;
        fields.push_back({std::string(name) + " " + part, begin, begin + size, guarded});
    };
    for (const GgufKey& key : file.keys()) {
        add(key.name, "name length", 8, true);
        add(key.name, "name", key.name.size(), kRequiredKeys.count(key.name) != 0);
        const auto values = static_cast<size_t>(key.values - base);
        // Type, then element type and count of an array or length of a string.
        add(key.name, "type and count", values - fields.back().end, true);
        if (key.bytes > 0) add(key.name, "value", key.bytes, false);
    }
    for (const GgufTensor& tensor : file.tensors()) {
        add(tensor.name, "name length", 8, true);
        add(tensor.name, "name", tensor.name.size(), true);
        add(tensor.name, "dimension count", 4, true);
        add(tensor.name, "dimensions", 8 * tensor.n_dims, true);
        add(tensor.name, "type", 4, true);
        add(tensor.name, "offset", 8, true);
    }
    return fields;
}

// Hash over everything a model says and over where its weights are. Reads both ends of every
// tensor, so that a tensor outside the file is noticed.
class Fingerprint {
public:
    explicit Fingerprint(const Model& model, const uint8_t* base) {
        add(model.name);
        add(model.file_type);
        add(model.hparams);
        for (const Tensor& tensor : model.tensors)
            add(tensor, base);
        for (const Layer& layer : model.layers)
            add(layer.kind);
        add(model.tied);
        add(model.vocab);
        const SamplingDefaults& s = model.sampling;
        add(s.sequence);
        add(s.top_k.value_or(-2));
        add(s.penalty_last_n.value_or(-2));
        for (const auto& value : {s.top_p, s.min_p, s.temperature, s.repetition_penalty}) {
            add(value.value_or(-2));
        }
    }

    uint64_t value() const { return hash_; }

private:
    void add(const void* data, size_t size) {
        for (size_t i = 0; i < size; ++i) {
            hash_ = (hash_ ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
        }
    }
    template <typename T, typename = std::enable_if_t<std::is_scalar_v<T>>>
    void add(T value) {
        add(&value, sizeof value);
    }
    void add(std::string_view text) {
        add(text.size());
        add(text.data(), text.size());
    }
    void add(const Hparams& h) {
        for (int32_t value : {h.n_vocab, h.n_ctx_train, h.n_embd, h.n_ff, h.n_layers,
                              int32_t{h.has_mtp}, h.n_heads, h.n_kv_heads, h.head_dim, h.rope_dim,
                              h.n_k_heads, h.n_v_heads, h.state_dim, h.conv_kernel}) {
            add(value);
        }
        add(h.rope_base);
        add(h.rms_eps);
    }
    void add(const Tensor& tensor, const uint8_t* base) {
        add(tensor.name);
        add(tensor.type);
        add(tensor.rows);
        add(tensor.cols);
        add(tensor.data - base);
        add(tensor.data[0]);
        add(tensor.data[tensor.bytes() - 1]);
    }
    void add(const Vocabulary& vocab) {
        for (int32_t id = 0; id < vocab.size(); ++id) {
            add(vocab.text(id));
            add(vocab.bytes(id));
            add(vocab.type(id));
        }
        for (size_t i = 0; i < vocab.merges().size(); ++i)
            add(vocab.merges()[i]);
        add(vocab.pre());
        add(vocab.chat_template());
        for (int32_t id : vocab.eog_ids())
            add(id);
        for (int32_t id : {vocab.eos_id(), vocab.bos_id(), vocab.pad_id()})
            add(id);
        add(vocab.add_bos());
    }

    uint64_t hash_ = 0xcbf29ce484222325u;
};

struct Totals {
    long long loaded = 0;
    long long refused = 0;
    long long failed = 0;
};

class Checker {
public:
    Checker(Bytes whole, bool exhaustive) : file_(std::move(whole)), exhaustive_(exhaustive) {
        const auto parsed = GgufFile::from_memory(file_.data(), file_.size(), kPath);
        fields_ = header_fields(*parsed, file_.data());
        header_bytes_ = fields_.back().end;
        original_ = Fingerprint(load_bytes(file_, kPath), file_.data()).value();
    }

    bool run() {
        truncations();
        changed_bytes();
        extreme_values();
        std::printf("%lld damaged files: %lld refused, %lld loaded, %lld failed\n",
                    totals_.refused + totals_.loaded, totals_.refused, totals_.loaded,
                    totals_.failed);
        return totals_.failed == 0;
    }

private:
    // Loads `bytes`, which are damaged as `what` says. `guarded`: see Field.
    void check(const Bytes& bytes, bool guarded, const std::string& what) {
        allocated = 0;
        try {
            const Model model = load_bytes(bytes, kPath);
            const size_t used = allocated;
            ++totals_.loaded;
            if (guarded && Fingerprint(model, bytes.data()).value() != original_) {
                fail(what, "loaded as another model");
            }
            if (used > bytes.size() + kAllowedBeyondFile) {
                fail(what, "allocated " + std::to_string(used) + " bytes");
            }
        } catch (const Error& error) {
            ++totals_.refused;
            if (allocated > bytes.size() + kAllowedBeyondFile) {
                fail(what, "allocated " + std::to_string(allocated) + " bytes");
            }
            if (!names_place(error.what())) fail(what, error.what());
        } catch (const std::exception& error) {
            fail(what, std::string("threw something else: ") + error.what());
        }
    }

    static bool names_place(const std::string& message) {
        const std::string start = std::string(kPath) + ": ";
        if (message.compare(0, start.size(), start) != 0) return false;
        for (const char* place : {"header: ", "key ", "tensor ", "data section: "}) {
            if (message.compare(start.size(), std::strlen(place), place) == 0) return true;
        }
        return false;
    }

    void fail(const std::string& what, const std::string& problem) {
        if (++totals_.failed <= 20) std::printf("FAILED: %s: %s\n", what.c_str(), problem.c_str());
    }

    // Only the padding of the last tensor can be cut without harm.
    void truncations() {
        std::set<size_t> sizes = {0, header_bytes_, file_.size() - 1};
        for (const Field& field : fields_)
            sizes.insert({field.begin + 1, field.end - 1, field.end});
        std::mt19937_64 random(1);
        for (int i = 0; i < (exhaustive_ ? 200 : 20); ++i)
            sizes.insert(random() % file_.size());
        if (exhaustive_) {
            for (size_t size = 0; size < header_bytes_; ++size)
                sizes.insert(size);
        }
        for (size_t size : sizes) {
            check(Bytes(file_.data(), size), true, "cut to " + std::to_string(size) + " bytes");
        }
    }

    // Each bit of a byte, and all of them. Long values and names (vocabulary, template) are
    // sampled.
    void changed_bytes() {
        Bytes bytes(file_.data(), file_.size());
        for (const Field& field : fields_) {
            const size_t size = field.end - field.begin;
            const size_t step = exhaustive_ || field.guarded ? 1 : std::max<size_t>(1, size / 16);
            for (size_t at = field.begin; at < field.end; at += step) {
                for (int mask : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
                    bytes.data()[at] = static_cast<uint8_t>(file_.data()[at] ^ mask);
                    check(
                        bytes, field.guarded,
                        field.what + ", byte " + std::to_string(at) + " ^ " + std::to_string(mask));
                }
                bytes.data()[at] = file_.data()[at];
            }
        }
    }

    void extreme_values() {
        static constexpr uint64_t values[] = {0,
                                              1,
                                              2,
                                              7,
                                              255,
                                              256,
                                              65535,
                                              65536,
                                              65537,
                                              1u << 24,
                                              INT32_MAX,
                                              1u << 31,
                                              UINT32_MAX,
                                              1ull << 32,
                                              1ull << 40,
                                              1ull << 61,
                                              INT64_MAX,
                                              1ull << 63,
                                              UINT64_MAX - 31,
                                              UINT64_MAX};
        std::mt19937_64 random(2);
        Bytes bytes(file_.data(), file_.size());
        for (int round = 0; round < (exhaustive_ ? 200000 : 5000); ++round) {
            std::vector<std::pair<size_t, size_t>> changed;
            std::string what = "extreme values in";
            for (uint64_t n = 1 + random() % 3; n > 0; --n) {
                const Field& field = fields_[random() % fields_.size()];
                const size_t size = std::min<size_t>(field.end - field.begin, random() % 2 ? 8 : 4);
                std::memcpy(bytes.data() + field.begin, &values[random() % std::size(values)],
                            size);
                changed.emplace_back(field.begin, size);
                what += " [" + field.what + "]";
            }
            check(bytes, false, what);
            for (auto [at, size] : changed)
                std::memcpy(bytes.data() + at, file_.data() + at, size);
        }
    }

    Bytes file_;
    bool exhaustive_;
    std::vector<Field> fields_;
    size_t header_bytes_ = 0;
    uint64_t original_ = 0;
    Totals totals_;
};

Bytes read_file(const char* path) {
    std::ifstream in(path, std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)),
                              std::istreambuf_iterator<char>());
    return Bytes(reinterpret_cast<const uint8_t*>(content.data()), content.size());
}

int main(int argc, char** argv) {
    const bool exhaustive = argc > 1 && std::strcmp(argv[1], "--exhaustive") == 0;
    const char* path = argc > (exhaustive ? 2 : 1) ? argv[argc - 1] : nullptr;
    try {
        return Checker(path ? read_file(path) : micro_model().build(), exhaustive).run() ? 0 : 1;
    } catch (const Error& error) {
        std::printf("the undamaged file does not load: %s\n", error.what());
        return 1;
    }
}

}  // namespace
}  // namespace oj::test

int main(int argc, char** argv) {
    return oj::test::main(argc, argv);
}
