// The CUDA backend's memory, planned without a device: the 27B file and eight conversations on a
// card of 24 GB; what lies where; refusals.
#include <cstdio>
#include <string>

#include "cuda/memory_plan.h"
#include "cuda/program.h"
#include "expect.h"
#include "model_shapes.h"

namespace oj::cuda {
namespace {

using test::expect;
using test::failures;

oj_backend_options options_27b() {
    oj_backend_options options = {};
    options.kind = OJ_BACKEND_CUDA;
    options.kv_codec = OJ_KV_Q8_0;
    options.n_slots = 8;
    options.n_pages = 132'000 / kv_page + 1;
    options.n_snapshots = 48;
    options.max_rows = 64;
    options.mtp = 1;
    return options;
}

int64_t device_bytes(const oj_memory_plan& plan) {
    return plan.weights + plan.states + plan.snapshots + plan.pages + plan.scratch - plan.host;
}

void test_24_gb() {
    Model model = test::shape_27b();
    oj_backend_options options = options_27b();
    oj_memory_plan plan = measure_memory(model, options, 40960);
    int64_t device = device_bytes(plan);
    std::printf(
        "27B, 8 conversations, 132,000 positions: %.3f GB on the device (weights %.3f, "
        "states %.3f, pages %.3f, scratch %.3f), %.3f GB on the host\n",
        static_cast<double>(device) / 1e9,
        static_cast<double>(plan.weights - static_cast<int64_t>(model.token_embd.bytes())) / 1e9,
        static_cast<double>(plan.states) / 1e9, static_cast<double>(plan.pages) / 1e9,
        static_cast<double>(plan.scratch) / 1e9, static_cast<double>(plan.host) / 1e9);
    // The driver's context takes 0.57 GB more on an H200; 23.5 GB are asked for all of it.
    expect(device <= 22'920'000'000, "27B fits a card of 24 GB");
    expect(plan.page_bytes == 36'992 * kv_page, "bytes of a page");
    expect(plan.host == static_cast<int64_t>(model.token_embd.bytes()) + plan.snapshots,
           "token embeddings and snapshots are on the host");
    options.fast_snapshots = 2;
    oj_memory_plan fast = measure_memory(model, options, 40960);
    expect(device_bytes(fast) == device + 2 * plan.state_bytes, "snapshots on the device");
}

// What is taken lies inside the region, in order, and nothing overlaps.
void test_places() {
    Model model = test::shape_mixed();
    Dims dims = dims_of(model, true);
    Limits limits = {4, 100, true, partials_of(dims)};
    Carver measured;
    place_scratch(&measured, dims, limits);
    auto* base = reinterpret_cast<uint8_t*>(memory_alignment);
    Carver carver(base);
    Scratch s = place_scratch(&carver, dims, limits);
    expect(carver.taken() == measured.taken(), "measuring and placing agree");
    auto* end = base + carver.taken();
    auto inside = [&](const void* at, int64_t bytes) {
        auto* begin = static_cast<const uint8_t*>(at);
        return begin >= base && begin + bytes <= end;
    };
    int64_t rows = max_step_rows, sampled = 4 * (1 + OJ_MAX_DRAFTS);
    expect(most_sampled(4) == sampled && most_sampled(8) == rows, "rows that can be sampled");
    expect(reinterpret_cast<uint8_t*>(s.x) == base, "the first buffer is at the beginning");
    expect(s.hidden >= s.x + rows * dims.n_embd, "hidden is behind x");
    expect(s.gate.data >= s.qkv.data + rows * 2 * dims.q_rows(), "gate is behind qkv");
    expect(inside(s.logits.at(0, sampled - 1), 4 * int64_t{dims.n_vocab}), "logits");
    expect(s.scores == s.qkv.data, "scores lie where qkv is when nobody chooses");
    expect(s.beta.data >= s.scores + sampled * dims.n_vocab, "beta is behind the scores");
    expect(s.beta.data >= s.partials + int64_t{limits.n_partials} * (dims.head_dim + 2),
           "and behind the partial results of attention");
    expect(inside(s.drawn_scores, int64_t{4} * 4 * OJ_MAX_DRAFTS * dims.n_vocab), "drawn scores");
    expect(inside(s.results, 4 * int64_t{sizeof(oj_seq_result)}), "results");
}

template <class F>
void expect_refused(F f, const char* names) {
    try {
        f();
        expect(false, std::string("not refused: ") + names);
    } catch (const Error& error) {
        expect(std::string(error.what()).find(names) != std::string::npos, error.what());
    }
}

void test_refusals() {
    Model model = test::shape_mixed();
    oj_backend_options options = options_27b();
    options.max_rows = 65;
    expect_refused([&] { check_cuda(model, options); }, "max_rows is 65");
    options = options_27b();
    options.kv_codec = OJ_KV_F32;
    expect_refused([&] { check_cuda(model, options); }, "f32");
    auto expect_size_refused = [&](int32_t Hparams::* size, int32_t value, const char* names) {
        Model changed = model;
        changed.hparams.*size = value;
        expect_refused([&] { check_cuda(changed, options_27b()); }, names);
    };
    expect_size_refused(&Hparams::state_dim, 96, "ssm.state_size is 96");
    expect_size_refused(&Hparams::head_dim, 96, "attention.key_length is 96");
    expect_size_refused(&Hparams::conv_kernel, 5, "ssm.conv_kernel is 5");
    expect_size_refused(&Hparams::n_embd, 5568, "embedding_length is 5568");
    expect_size_refused(&Hparams::n_embd, 5152, "embedding_length is 5152");
}

}  // namespace

int run() {
    test_24_gb();
    test_places();
    test_refusals();
    return failures == 0 ? 0 : 1;
}

}  // namespace oj::cuda

int main() {
    return oj::cuda::run();
}
