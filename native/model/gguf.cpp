#include "model/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read as they lie in the file");

namespace oj {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 255;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;

template <typename T>
T load(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::string_view string_at(const uint8_t* at) {
    return {reinterpret_cast<const char*>(at + 8), load<uint64_t>(at)};
}

// Bytes of a value of fixed size, 0 for strings and arrays.
uint64_t scalar_bytes(GgufType type) {
    switch (type) {
        case GgufType::u8:
        case GgufType::i8:
        case GgufType::boolean:
            return 1;
        case GgufType::u16:
        case GgufType::i16:
            return 2;
        case GgufType::u32:
        case GgufType::i32:
        case GgufType::f32:
            return 4;
        case GgufType::u64:
        case GgufType::i64:
        case GgufType::f64:
            return 8;
        case GgufType::string:
        case GgufType::array:
            break;
    }
    return 0;
}

const char* type_name(GgufType type) {
    static const char* const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return names[static_cast<uint32_t>(type)];
}

std::string describe(const GgufKey& key) {
    if (!key.is_array) return type_name(key.type);
    return "array of " + std::to_string(key.count) + " " + type_name(key.type);
}

bool is_integer(GgufType type) {
    return scalar_bytes(type) != 0 && type != GgufType::f32 && type != GgufType::f64 &&
           type != GgufType::boolean;
}

// An integer or bool; values of u64 beyond int64 saturate, which every range check refuses.
int64_t integer_at(GgufType type, const uint8_t* at) {
    switch (type) {
        case GgufType::u8:
        case GgufType::boolean:
            return load<uint8_t>(at);
        case GgufType::i8:
            return load<int8_t>(at);
        case GgufType::u16:
            return load<uint16_t>(at);
        case GgufType::i16:
            return load<int16_t>(at);
        case GgufType::u32:
            return load<uint32_t>(at);
        case GgufType::i32:
            return load<int32_t>(at);
        case GgufType::u64:
            return static_cast<int64_t>(std::min<uint64_t>(load<uint64_t>(at), INT64_MAX));
        default:
            return load<int64_t>(at);
    }
}

Error file_error(int code, const std::string& path, const std::string& problem) {
    return Error(code, path + ": " + problem);
}

uint64_t round_up(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

std::string accepted_types() {
    std::string names;
    for (uint32_t id = 0; id < 64; ++id) {
        const BlockTypeInfo* info = find_block_type(id);
        if (info) names += (names.empty() ? "" : ", ") + std::string(info->name);
    }
    return names;
}

// Indices of `items` in the order of their names; `duplicate` makes the error for a repeated one.
template <typename Item, typename MakeError>
std::vector<uint32_t> sorted_by_name(const std::vector<Item>& items, MakeError duplicate) {
    std::vector<uint32_t> order(items.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return items[a].name < items[b].name; });
    for (size_t i = 1; i < order.size(); ++i) {
        if (items[order[i - 1]].name == items[order[i]].name) throw duplicate(items[order[i]].name);
    }
    return order;
}

template <typename Item>
const Item* find_by_name(const std::vector<Item>& items, const std::vector<uint32_t>& order,
                         std::string_view name) {
    auto found = std::lower_bound(
        order.begin(), order.end(), name,
        [&](uint32_t index, std::string_view wanted) { return items[index].name < wanted; });
    if (found == order.end() || items[*found].name != name) return nullptr;
    return &items[*found];
}

}  // namespace

std::string quoted(std::string_view text) {
    constexpr size_t kShown = 80;
    static const char hex[] = "0123456789abcdef";
    std::string out = "'";
    for (char c : text.substr(0, kShown)) {
        const auto byte = static_cast<uint8_t>(c);
        if (byte >= 0x20 && byte < 0x7f) {
            out += c;
        } else {
            out += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
        }
    }
    return out + (text.size() > kShown ? "...'" : "'");
}

std::string_view GgufStrings::operator[](size_t i) const {
    return string_at(starts_[i]);
}

// Walks the header once, front to back. `where_` says what is being read, for messages.
class GgufFile::Parser {
public:
    explicit Parser(GgufFile& file) : file_(file), at_(file.data_), end_(file.data_ + file.size_) {}

    void parse() {
        where_ = "header";
        check_magic_and_version();
        const uint64_t n_tensors = read<uint64_t>();
        const uint64_t n_keys = read<uint64_t>();
        check_count("tensors", n_tensors, kMaxTensors, 8 + 4 + 8 + 4 + 8);
        check_count("keys", n_keys, kMaxKeys, 8 + 4 + 1);

        file_.keys_.reserve(n_keys);
        for (uint64_t i = 0; i < n_keys; ++i)
            file_.keys_.push_back(read_key(i, n_keys));
        file_.keys_by_name_ = sorted_by_name(file_.keys_, [&](std::string_view name) {
            return file_.key_error(OJ_ERR_FORMAT, name, "appears twice");
        });

        alignment_ = read_alignment();
        file_.tensors_.reserve(n_tensors);
        for (uint64_t i = 0; i < n_tensors; ++i)
            read_tensor(i, n_tensors);
        file_.tensors_by_name_ = sorted_by_name(file_.tensors_, [&](std::string_view name) {
            return file_.tensor_error(OJ_ERR_FORMAT, name, "appears twice");
        });
        place_tensors();
    }

private:
    uint64_t left() const { return static_cast<uint64_t>(end_ - at_); }

    Error format_error(const std::string& problem) const {
        return file_error(OJ_ERR_FORMAT, file_.path_, where_ + ": " + problem);
    }

    void need(uint64_t bytes) const {
        if (bytes > left()) {
            throw format_error("needs " + std::to_string(bytes) + " bytes at offset " +
                               std::to_string(at_ - file_.data_) + ", but the file ends after " +
                               std::to_string(left()) + " (truncated or damaged)");
        }
    }

    template <typename T>
    T read() {
        need(sizeof(T));
        const T value = load<T>(at_);
        at_ += sizeof(T);
        return value;
    }

    std::string_view read_string() {
        const auto length = read<uint64_t>();
        need(length);
        const std::string_view text(reinterpret_cast<const char*>(at_), length);
        at_ += length;
        return text;
    }

    std::string_view read_name(uint64_t max_bytes) {
        const std::string_view name = read_string();
        if (name.empty() || name.size() > max_bytes) {
            throw format_error("name of " + std::to_string(name.size()) + " bytes, expected 1 to " +
                               std::to_string(max_bytes));
        }
        return name;
    }

    // Before anything is allocated for `count` items of at least `item_bytes` bytes each.
    void check_count(const char* what, uint64_t count, uint64_t most, uint64_t item_bytes) const {
        if (count > most || count > left() / item_bytes) {
            throw format_error(std::to_string(count) + " " + what + ", but the " +
                               std::to_string(left()) + " bytes that follow hold at most " +
                               std::to_string(std::min(most, left() / item_bytes)));
        }
    }

    void check_magic_and_version() {
        need(8);
        if (std::memcmp(at_, "GGUF", 4) != 0) {
            throw format_error("not a GGUF file: it starts with " +
                               quoted({reinterpret_cast<const char*>(at_), 4}) +
                               ", expected 'GGUF'");
        }
        at_ += 4;
        const auto version = read<uint32_t>();
        if (version != 2 && version != 3) {
            const bool swapped = version != 0 && (version & 0xffff) == 0;
            throw file_error(OJ_ERR_UNSUPPORTED, file_.path_,
                             "header: GGUF version " + std::to_string(version) +
                                 (swapped ? " (a big-endian file?)" : "") + ", expected 2 or 3");
        }
    }

    GgufType read_type() {
        const auto id = read<uint32_t>();
        if (id > static_cast<uint32_t>(GgufType::f64)) {
            throw format_error("unknown value type " + std::to_string(id));
        }
        return static_cast<GgufType>(id);
    }

    GgufKey read_key(uint64_t index, uint64_t count) {
        where_ = "key " + std::to_string(index + 1) + " of " + std::to_string(count);
        GgufKey key{};
        key.name = read_name(kMaxKeyBytes);
        where_ = "key " + quoted(key.name);
        key.type = read_type();
        key.count = 1;
        if (key.type == GgufType::array) {
            key.is_array = true;
            key.type = read_type();
            key.count = read<uint64_t>();
            if (key.type == GgufType::array) throw format_error("arrays of arrays are not allowed");
        }
        read_values(key);
        return key;
    }

    void read_values(GgufKey& key) {
        key.values = at_;
        if (const uint64_t size = scalar_bytes(key.type)) {
            check_count("elements", key.count, UINT64_MAX, size);
            if (key.type == GgufType::boolean) check_bools(key.count);
            at_ += key.count * size;
        } else if (key.is_array) {
            check_count("strings", key.count, UINT64_MAX, 8);
            for (uint64_t i = 0; i < key.count; ++i)
                read_string();
        } else {
            key.values += 8;
            read_string();
        }
        key.bytes = static_cast<uint64_t>(at_ - key.values);
    }

    void check_bools(uint64_t count) const {
        for (uint64_t i = 0; i < count; ++i) {
            if (at_[i] > 1) {
                throw format_error("bool with value " + std::to_string(at_[i]) +
                                   ", expected 0 or 1");
            }
        }
    }

    uint64_t read_alignment() {
        const char* const name = "general.alignment";
        const std::optional<int64_t> value = file_.find_int(name);
        if (!value) return kDefaultAlignment;
        const auto alignment = static_cast<uint64_t>(*value);
        if (*value < 8 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
            throw file_.key_error(OJ_ERR_FORMAT, name,
                                  std::to_string(*value) + " is not a power of two from 8 to " +
                                      std::to_string(kMaxAlignment));
        }
        return alignment;
    }

    // Tensors follow each other in the data section in the order of their descriptions, each
    // starting at the next multiple of the alignment: so they cannot overlap.
    void read_tensor(uint64_t index, uint64_t count) {
        where_ = "tensor " + std::to_string(index + 1) + " of " + std::to_string(count);
        GgufTensor tensor{};
        tensor.name = read_name(kMaxTensorNameBytes);
        where_ = "tensor " + quoted(tensor.name);
        tensor.n_dims = read<uint32_t>();
        if (tensor.n_dims < 1 || tensor.n_dims > 4) {
            throw format_error(std::to_string(tensor.n_dims) + " dimensions, expected 1 to 4");
        }
        std::fill(tensor.dims, tensor.dims + 4, 1);
        for (uint32_t d = 0; d < tensor.n_dims; ++d) {
            const auto size = read<uint64_t>();
            if (size < 1 || size > INT64_MAX) {
                throw format_error("dimension " + std::to_string(d) + " of size " +
                                   std::to_string(size));
            }
            tensor.dims[d] = static_cast<int64_t>(size);
        }
        const BlockTypeInfo& type = read_block_type();
        tensor.type = type.type;
        tensor.bytes = tensor_bytes(tensor, type);

        const auto offset = read<uint64_t>();
        if (offset != data_bytes_) {
            throw format_error("data at offset " + std::to_string(offset) +
                               " of the data section, expected " + std::to_string(data_bytes_) +
                               " (right after the tensor before it)");
        }
        data_end_ = data_bytes_ + tensor.bytes;
        data_bytes_ = round_up(data_end_, alignment_);
        file_.tensors_.push_back(tensor);
    }

    const BlockTypeInfo& read_block_type() {
        const auto id = read<uint32_t>();
        const BlockTypeInfo* type = find_block_type(id);
        if (!type) {
            throw file_error(OJ_ERR_UNSUPPORTED, file_.path_,
                             where_ + ": type " + ggml_type_name(id) + " (" + std::to_string(id) +
                                 ") is not supported; supported are " + accepted_types());
        }
        return *type;
    }

    uint64_t tensor_bytes(const GgufTensor& tensor, const BlockTypeInfo& type) const {
        const auto cols = static_cast<uint64_t>(tensor.dims[0]);
        if (cols % type.block_elements != 0) {
            throw format_error("rows of " + std::to_string(cols) + " elements, but " + type.name +
                               " needs a multiple of " + std::to_string(type.block_elements));
        }
        uint64_t bytes = cols / type.block_elements;
        bool overflow = __builtin_mul_overflow(bytes, uint64_t{type.block_bytes}, &bytes);
        for (int d = 1; d < 4; ++d) {
            overflow |=
                __builtin_mul_overflow(bytes, static_cast<uint64_t>(tensor.dims[d]), &bytes);
        }
        if (overflow || bytes > file_.size_) {
            throw format_error("its shape needs more bytes than the file's " +
                               std::to_string(file_.size_) + " (truncated or damaged)");
        }
        return bytes;
    }

    // After the last description: the data section must hold exactly the described tensors. Bytes
    // left over mean that a count or a size in the header is wrong.
    void place_tensors() {
        where_ = "data section";
        const uint64_t start = round_up(static_cast<uint64_t>(at_ - file_.data_),
                                        file_.tensors_.empty() ? 1 : alignment_);
        if (start > file_.size_ || data_end_ > file_.size_ - start) {
            throw format_error("the tensors end at byte " + std::to_string(start + data_end_) +
                               ", but the file has " + std::to_string(file_.size_) +
                               " (truncated or damaged)");
        }
        if (file_.size_ - start > data_bytes_) {
            throw format_error(std::to_string(file_.size_ - start - data_bytes_) +
                               " bytes follow the last tensor, expected none (damaged)");
        }
        const uint8_t* data = file_.data_ + start;
        for (GgufTensor& tensor : file_.tensors_) {
            tensor.data = data;
            data += round_up(tensor.bytes, alignment_);
        }
    }

    GgufFile& file_;
    const uint8_t* at_;
    const uint8_t* const end_;
    std::string where_;
    uint64_t alignment_ = kDefaultAlignment;
    uint64_t data_bytes_ = 0;  // of the tensors read so far, with padding
    uint64_t data_end_ = 0;    // without the last one's padding
};

std::unique_ptr<const GgufFile> GgufFile::open(const std::string& path) {
    const auto io_error = [&](const char* what) {
        return file_error(OJ_ERR_IO, path, std::string(what) + ": " + std::strerror(errno));
    };
    // O_NONBLOCK: a FIFO must fail below instead of waiting for a writer here.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) throw io_error("cannot open");
    struct stat info{};
    void* data = MAP_FAILED;
    const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    const auto size = static_cast<size_t>(info.st_size);
    if (regular && size > 0) data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    const int mmap_errno = errno;
    ::close(fd);
    if (!regular) throw file_error(OJ_ERR_IO, path, "not a regular file");
    if (size == 0) throw file_error(OJ_ERR_FORMAT, path, "header: the file is empty");
    errno = mmap_errno;
    if (data == MAP_FAILED) throw io_error("cannot map");
    std::unique_ptr<GgufFile> file(
        new GgufFile(path, static_cast<const uint8_t*>(data), size, true));
    Parser(*file).parse();
    return file;
}

std::unique_ptr<const GgufFile> GgufFile::from_memory(const uint8_t* data, size_t size,
                                                      const std::string& name) {
    std::unique_ptr<GgufFile> file(new GgufFile(name, data, size, false));
    Parser(*file).parse();
    return file;
}

GgufFile::~GgufFile() {
    if (mapped_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

Error GgufFile::key_error(int code, std::string_view name, const std::string& problem) const {
    return file_error(code, path_, "key " + quoted(name) + ": " + problem);
}

Error GgufFile::tensor_error(int code, std::string_view name, const std::string& problem) const {
    return file_error(code, path_, "tensor " + quoted(name) + ": " + problem);
}

const GgufKey* GgufFile::find_key(std::string_view name) const {
    return find_by_name(keys_, keys_by_name_, name);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
    return find_by_name(tensors_, tensors_by_name_, name);
}

const GgufKey& GgufFile::get_key(std::string_view name) const {
    const GgufKey* key = find_key(name);
    if (!key) throw key_error(OJ_ERR_FORMAT, name, "is missing");
    return *key;
}

const GgufKey* GgufFile::find_scalar(std::string_view name, bool (*accepts)(GgufType),
                                     const char* expected) const {
    const GgufKey* key = find_key(name);
    if (key && (key->is_array || !accepts(key->type))) {
        throw key_error(OJ_ERR_FORMAT, name,
                        "is of type " + describe(*key) + ", expected " + expected);
    }
    return key;
}

std::optional<int64_t> GgufFile::find_int(std::string_view name) const {
    const GgufKey* key = find_scalar(name, is_integer, "an integer");
    if (!key) return std::nullopt;
    return integer_at(key->type, key->values);
}

std::optional<double> GgufFile::find_float(std::string_view name) const {
    const auto is_float = [](GgufType type) {
        return type == GgufType::f32 || type == GgufType::f64;
    };
    const GgufKey* key = find_scalar(name, is_float, "f32 or f64");
    if (!key) return std::nullopt;
    if (key->type == GgufType::f32) return static_cast<double>(load<float>(key->values));
    return load<double>(key->values);
}

std::optional<bool> GgufFile::find_bool(std::string_view name) const {
    const auto is_bool = [](GgufType type) { return type == GgufType::boolean; };
    const GgufKey* key = find_scalar(name, is_bool, "bool");
    if (!key) return std::nullopt;
    return *key->values != 0;
}

std::optional<std::string_view> GgufFile::find_string(std::string_view name) const {
    const auto is_string = [](GgufType type) { return type == GgufType::string; };
    const GgufKey* key = find_scalar(name, is_string, "string");
    if (!key) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(key->values), key->bytes);
}

int64_t GgufFile::get_int(std::string_view name) const {
    get_key(name);
    return *find_int(name);
}

double GgufFile::get_float(std::string_view name) const {
    get_key(name);
    return *find_float(name);
}

std::string_view GgufFile::get_string(std::string_view name) const {
    get_key(name);
    return *find_string(name);
}

std::vector<int64_t> GgufFile::find_ints(std::string_view name, uint64_t max_count) const {
    const GgufKey* key = find_key(name);
    if (!key) return {};
    if (!is_integer(key->type) && key->type != GgufType::boolean) {
        throw key_error(OJ_ERR_FORMAT, name,
                        "is of type " + describe(*key) + ", expected integers or bools");
    }
    if (key->count > max_count) {
        throw key_error(OJ_ERR_FORMAT, name,
                        std::to_string(key->count) + " elements, expected at most " +
                            std::to_string(max_count));
    }
    std::vector<int64_t> values(key->count);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = integer_at(key->type, key->values + i * scalar_bytes(key->type));
    }
    return values;
}

GgufStrings GgufFile::get_strings(std::string_view name) const {
    const GgufKey& key = get_key(name);
    if (!key.is_array || key.type != GgufType::string) {
        throw key_error(OJ_ERR_FORMAT, name,
                        "is of type " + describe(key) + ", expected array of strings");
    }
    GgufStrings strings;
    strings.starts_.reserve(key.count);
    const uint8_t* at = key.values;
    for (uint64_t i = 0; i < key.count; ++i) {
        strings.starts_.push_back(at);
        at += 8 + load<uint64_t>(at);
    }
    return strings;
}

}  // namespace oj
