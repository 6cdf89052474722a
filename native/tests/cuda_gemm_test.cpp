// Matrix products of the CUDA backend have the bits of the CPU's: every block type, width,
// remainder of columns and rows, several matrices a phase and phases a step; on the emulator under
// random schedules, where taking a wait out is found.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/activations.h"
#include "cpu/gemm.h"
#include "cpu/weights.h"
#include "cuda/ptx.h"
#include "cuda/shares.h"
#include "cuda_launch.h"

#if defined(OJ_EMULATE)
namespace oj::cuda {

// What a mutation leaves out of the stream.
enum class Missing { nothing, copy_wait, warp_sync };
Missing missing = Missing::nothing;

template <int newest_left>
void copy_wait_unless_missing() {
    if (missing != Missing::copy_wait) copy_wait<newest_left>();
}
inline void warp_sync_unless_missing(OJ_SITE) {
    if (missing != Missing::warp_sync) warp_sync(site);
}

}  // namespace oj::cuda

#define copy_wait copy_wait_unless_missing
#define warp_sync warp_sync_unless_missing
#endif
#include "cuda/gemm.cuh"
#undef copy_wait
#undef warp_sync
#include "cuda/quantize.cuh"
#include "cuda/repack.cuh"
#include "expect.h"

namespace oj::cuda {
namespace {

using test::expect;
using test::failures;

using Random = std::mt19937_64;

// A weight of random blocks, as in a file.
using Bytes = SharedVector<uint8_t>;
struct Weight {
    Tensor tensor;
    Bytes bytes, tiles;
};

uint16_t random_half(Random& random) {
    return float_to_half(std::normal_distribution<float>(0, 0.01f)(random));
}

template <class Block>
void set_scales(Bytes& bytes, Random& random, uint16_t Block::* d, uint16_t Block::* m = nullptr) {
    for (size_t at = 0; at < bytes.size(); at += sizeof(Block)) {
        auto* block = reinterpret_cast<Block*>(bytes.data() + at);
        block->*d = random_half(random);
        if (m != nullptr) block->*m = random_half(random);
    }
}

// Random bits are fine as codes and integer scales, not as floats.
void make_floats_finite(Weight& w, Random& random) {
    switch (w.tensor.type) {
        case BlockType::Q4_K:
            return set_scales(w.bytes, random, &BlockQ4_K::d, &BlockQ4_K::dmin);
        case BlockType::Q5_K:
            return set_scales(w.bytes, random, &BlockQ5_K::d, &BlockQ5_K::dmin);
        case BlockType::Q6_K:
            return set_scales(w.bytes, random, &BlockQ6_K::d);
        case BlockType::IQ4_XS:
            return set_scales(w.bytes, random, &BlockIQ4_XS::d);
        case BlockType::Q8_0:
            return set_scales(w.bytes, random, &BlockQ8_0::d);
        case BlockType::Q4_0:
            return set_scales(w.bytes, random, &BlockQ4_0::d);
        case BlockType::Q4_1:
            return set_scales(w.bytes, random, &BlockQ4_1::d, &BlockQ4_1::m);
        case BlockType::Q5_0:
            return set_scales(w.bytes, random, &BlockQ5_0::d);
        case BlockType::Q5_1:
            return set_scales(w.bytes, random, &BlockQ5_1::d, &BlockQ5_1::m);
        case BlockType::IQ4_NL:
            return set_scales(w.bytes, random, &BlockIQ4_NL::d);
        case BlockType::F32:
            for (size_t at = 0; at < w.bytes.size(); at += 4) {
                float value = half_to_float(random_half(random));
                std::memcpy(w.bytes.data() + at, &value, 4);
            }
            return;
        case BlockType::F16:
        case BlockType::BF16:
            for (size_t at = 0; at < w.bytes.size(); at += 2) {
                uint16_t value = random_half(random);
                if (w.tensor.type == BlockType::BF16)
                    value = static_cast<uint16_t>(float_to_bits(half_to_float(value)) >> 16);
                std::memcpy(w.bytes.data() + at, &value, 2);
            }
            return;
    }
}

Weight random_weight(BlockType type, int rows, int cols, Random& random) {
    Weight w;
    w.tensor.name = block_type_info(type).name;
    w.tensor.type = type;
    w.tensor.rows = rows;
    w.tensor.cols = cols;
    w.tensor.row_bytes = row_bytes(type, cols);
    w.bytes.resize(w.tensor.bytes());
    for (uint8_t& byte : w.bytes)
        byte = static_cast<uint8_t>(random());
    make_floats_finite(w, random);
    w.tensor.data = w.bytes.data();
    return w;
}

struct Repack {
    RepackJob job;
    OJ_BODY void operator()() const { repack_rows(job); }
};

// Packed by the device over rubbish.
void pack(Weight& w) {
    const Tensor& t = w.tensor;
    if (tile_format(t.type).code_bits == 0) return;
    int n_tiles = static_cast<int>((t.rows + tile_rows - 1) / tile_rows);
    w.tiles.assign(n_tiles * packed_tile_bytes(t.type, t.cols) + 16, 0xa5);
    RepackJob job = {t.type,
                     t.data,
                     static_cast<int64_t>(t.row_bytes),
                     static_cast<int>(t.rows),
                     static_cast<int>(t.cols),
                     w.tiles.data()};
    launch(2, 0, t.rows, Repack{job});
}

struct Case {
    int n_rows;
    int n_blocks;
    int ring_bytes;  // of a block
    bool sums_segments;
    std::vector<int> cols;                                       // of each phase
    std::vector<std::vector<std::pair<BlockType, int>>> phases;  // (type, outputs)
};

// Every phase writes its input, then multiplies it; all blocks meet behind either.
struct StepKernel {
    static constexpr int most_phases = 5;
    static constexpr int ring_at = 2048;  // behind the warps' streams
    static_assert(sizeof(Stream) * block_warps <= ring_at);

    Context c;
    Schedule schedule;
    int ring_bytes;
    uint32_t* arrived;
    const float* inputs[most_phases];
    float* outputs[most_phases][4];

    OJ_BODY void operator()() const {
        Grid grid = {block_index(), block_count(), nullptr};
        Stream& stream = reinterpret_cast<Stream*>(shared_memory())[warp_index()];
        open_stream(schedule, ring_at, ring_bytes, stream);
        uint32_t meetings = 0;
        for (int i = 0; i < schedule.n_entries; ++i) {
            const Phase& phase = schedule.phases[i];
            write_rows(grid, phase, inputs[i]);
            meet(++meetings * grid.n_blocks);
            Context mine = c;
            for (int m = 0; m < phase.n_matrices; ++m)
                product_of(mine.scratch, phase.targets[m]).data = outputs[i][m];
            phase_multiply(mine, schedule, stream, phase);
            fill(schedule, stream);
            meet(++meetings * grid.n_blocks);
        }
    }

    // The input of a phase, a warp for 256 columns of a row.
    OJ_BODY void write_rows(const Grid& grid, const Phase& phase, const float* values) const {
        int cols = phase.matrices[0].cols, groups = (cols + super_group - 1) / super_group;
        int warp = grid.block * block_warps + warp_index();
        for (int at = warp; at < c.step.n_rows * groups; at += grid.n_blocks * block_warps) {
            int row = at / groups, first = at % groups * super_group;
            LaneColumns x;
            for (int k = 0; k < lane_columns; ++k) {
                int column = first + lane_index() * lane_columns + k;
                x.v[k] = column < cols ? values[row * cols + column] : 1e9f;
            }
            write_input(c.scratch.input, phase.forms, row, cols, first, x);
        }
    }

    // All blocks, the `target`th arrival in all.
    OJ_BODY void meet(uint32_t target) const {
        block_sync();
        if (thread_index() == 0) {
            add_release(arrived, 1);
            while (load_acquire(arrived) < target)
                spin_pause();
        }
        block_sync();
    }
};

// One case: its weights, inputs and what the CPU makes of them.
class Step {
public:
    Step(const Case& c, Random& random) : case_(c) {
        for (size_t i = 0; i < c.phases.size(); ++i) {
            int cols = c.cols[i];
            std::normal_distribution<float> normal(0, 2);
            inputs_.emplace_back(static_cast<size_t>(c.n_rows) * cols);
            for (float& x : inputs_.back())
                x = normal(random);
            weights_.emplace_back();
            for (auto [type, rows] : c.phases[i]) {
                weights_.back().push_back(random_weight(type, rows, cols, random));
                pack(weights_.back().back());
            }
        }
        for (size_t i = 0; i < c.phases.size(); ++i)
            phases_.push_back(make_phase(i));
        std::vector<const Phase*> products;
        for (int32_t i = 0; i < static_cast<int32_t>(phases_.size()); ++i) {
            sequence_.push_back({i, 0});
            phases_[i].product = i;
            products.push_back(&phases_[i]);
            // The first two are a run, the others one each.
            const auto product = static_cast<int16_t>(i);
            if (i != 1) runs_.push_back({product, product, c.n_rows});
            ++runs_.back().end;
        }
        const Shares shares = share_products(products, c.n_blocks);
        bundles_.assign(shares.bundles.begin(), shares.bundles.end());
        first_bundles_.assign(shares.first.begin(), shares.first.end());
    }

    void run_on_cpu(cpu::ThreadPool& pool) {
        for (size_t i = 0; i < phases_.size(); ++i) {
            int cols = case_.cols[i];
            cpu::Activations input(case_.n_rows, cols);
            cpu::Forms forms;
            for (const Weight& w : weights_[i])
                forms = forms.with(w.tensor.type);
            for (int r = 0; r < case_.n_rows; ++r) {
                std::copy_n(inputs_[i].data() + r * cols, cols, input.row(r, cols));
                input.quantize(cpu::kernels_portable, forms, r, cols, 0, cols);
            }
            expected_.emplace_back();
            for (const Weight& w : weights_[i]) {
                std::vector<int32_t> all(w.tensor.rows);
                for (size_t o = 0; o < all.size(); ++o)
                    all[o] = static_cast<int32_t>(o);
                cpu::RowSubset packed(w.tensor, all, pool);
                cpu::Matrix matrix = packed.matrix();
                expected_.back().emplace_back(case_.n_rows * w.tensor.rows);
                float* out = expected_.back().back().data();
                cpu::ThreadPool::Kind jobs;
                pool.run(&jobs, [&](cpu::Worker& worker) {
                    cpu::multiply(worker, cpu::kernels_portable, input, case_.n_rows,
                                  {{&matrix, out}});
                });
            }
        }
    }

    // Whether every product of the device's step has the CPU's bits.
    bool run_on_device(uint64_t seed) {
        int most_cols = *std::max_element(case_.cols.begin(), case_.cols.end());
        size_t n = static_cast<size_t>(max_step_rows) * (most_cols + 64);
        SharedVector<float> values(n), scales256(n), scales32(n);
        SharedVector<int8_t> codes256(n), codes32(n), sums32(n);
        SharedVector<int16_t> sums(n);
        DeviceMemory<uint32_t> arrived(1);
        StepKernel step = {};
        step.c.step.n_rows = step.c.step.n_logits = case_.n_rows;
        step.c.scratch.input = {values.data(),  codes256.data(), scales256.data(), sums32.data(),
                                codes32.data(), scales32.data(), sums.data()};
        step.schedule = {phases_.data(),
                         sequence_.data(),
                         runs_.data(),
                         bundles_.data(),
                         first_bundles_.data(),
                         static_cast<int32_t>(sequence_.size()),
                         static_cast<int32_t>(runs_.size()),
                         static_cast<int32_t>(phases_.size()),
                         -1};
        step.ring_bytes = case_.ring_bytes;
        step.arrived = arrived.data();
        Outputs outputs(phases_.size());
        for (size_t i = 0; i < phases_.size(); ++i) {
            step.inputs[i] = inputs_[i].data();
            for (int m = 0; m < phases_[i].n_matrices; ++m) {
                const Matrix& matrix = phases_[i].matrices[m];
                outputs[i].emplace_back(matrix.n_segments * max_step_rows * matrix.rows, 1e30f);
                step.outputs[i][m] = outputs[i].back().data();
            }
        }
        launch(case_.n_blocks, StepKernel::ring_at + case_.ring_bytes, seed, step);
        return same_bits(outputs);
    }

private:
    using Outputs = std::vector<std::vector<SharedVector<float>>>;
    static constexpr Target targets[4] = {Target::qkv, Target::gate, Target::up, Target::out};

    Phase make_phase(size_t i) const {
        Phase p = {};
        p.kind = PhaseKind::multiply;
        for (const Weight& w : weights_[i]) {
            Matrix& m = p.matrices[p.n_matrices];
            m.type = static_cast<int>(w.tensor.type);
            m.rows = static_cast<int>(w.tensor.rows);
            m.cols = static_cast<int>(w.tensor.cols);
            m.n_tiles = (m.rows + tile_rows - 1) / tile_rows;
            bool packed = tile_format(w.tensor.type).code_bits != 0;
            m.data = packed ? w.tiles.data() +
                                  (16 - reinterpret_cast<uintptr_t>(w.tiles.data()) % 16) % 16
                            : w.tensor.data;
            m.tile_bytes = packed_tile_bytes(w.tensor.type, m.cols);
            bool split = !case_.sums_segments && m.cols > k_segment;
            m.n_segments = split ? (m.cols + k_segment - 1) / k_segment : 1;
            m.segment_bytes = split ? packed_tile_bytes(w.tensor.type, k_segment) : m.tile_bytes;
            p.targets[p.n_matrices] = targets[p.n_matrices];
            ++p.n_matrices;
            uint32_t elements = block_type_info(w.tensor.type).block_elements;
            p.forms.values |= elements == 1;
            p.forms.group32 |= elements == small_group;
            p.forms.group256 |= elements == super_group;
        }
        return p;
    }

    bool same_bits(const Outputs& outputs) const {
        for (size_t i = 0; i < outputs.size(); ++i) {
            for (size_t m = 0; m < outputs[i].size(); ++m) {
                const Matrix& matrix = phases_[i].matrices[m];
                Product product = {const_cast<float*>(outputs[i][m].data()), matrix.rows,
                                   matrix.n_segments};
                for (int r = 0; r < case_.n_rows; ++r) {
                    for (int o = 0; o < matrix.rows; ++o) {
                        float sum = 0;
                        for (int s = 0; s < matrix.n_segments; ++s)
                            sum += product.at(s, r)[o];
                        float expected = expected_[i][m][r * matrix.rows + o];
                        if (std::memcmp(&sum, &expected, 4) != 0) return false;
                    }
                }
            }
        }
        return true;
    }

    const Case& case_;
    std::vector<SharedVector<float>> inputs_;
    std::vector<std::vector<Weight>> weights_;
    std::vector<std::vector<std::vector<float>>> expected_;
    SharedVector<Phase> phases_;
    SharedVector<SequenceEntry> sequence_;
    SharedVector<ProductRun> runs_;
    SharedVector<Bundle> bundles_;
    SharedVector<int32_t> first_bundles_;
};

constexpr BlockType super_types[] = {BlockType::Q4_K, BlockType::Q5_K, BlockType::Q6_K,
                                     BlockType::IQ4_XS};
constexpr BlockType small_types[] = {BlockType::Q8_0, BlockType::Q4_0, BlockType::Q4_1,
                                     BlockType::Q5_0, BlockType::Q5_1, BlockType::IQ4_NL,
                                     BlockType::F32,  BlockType::F16,  BlockType::BF16};
constexpr int ring = block_warps * 9216;

std::string name(const Case& c) {
    return std::string(block_type_info(c.phases[0][0].first).name) + ", " +
           std::to_string(c.cols[0]) + " columns, " + std::to_string(c.n_rows) + " rows, " +
           std::to_string(c.n_blocks) + " blocks";
}

void expect_equal(const Case& c, Random& random, cpu::ThreadPool& pool) {
    if (StepKernel::ring_at + c.ring_bytes > most_shared_bytes()) return;  // of a smaller card
    Step step(c, random);
    step.run_on_cpu(pool);
    try {
        expect(step.run_on_device(random()), "bits differ: " + name(c));
    } catch (const LaunchError& error) {
        expect(false, name(c) + ": " + error.what());
    }
}

// Each type alone: widths around the column groups, columns around the segments.
void test_types(cpu::ThreadPool& pool) {
    Random random(1);
    constexpr int widths[] = {1, 3, 8, 9, 17, 24, 31, 40, 64};
    int turn = 0;
    auto one = [&](BlockType type, int cols) {
        int n_rows = widths[turn++ % 9];
        int outputs = 1 + static_cast<int>(random() % 50);
        expect_equal({n_rows, 1 + turn % 3, ring, turn % 4 == 0, {cols}, {{{type, outputs}}}},
                     random, pool);
    };
    for (BlockType type : super_types) {
        for (int cols : {256, 512, 2048, 2304, 4352, 5120})
            one(type, cols);
    }
    for (BlockType type : small_types) {
        for (int cols : {32, 96, 224, 256, 2048, 2080, 4416})
            one(type, cols);
    }
}

// Every width over the three types of the file that matters.
void test_widths(cpu::ThreadPool& pool) {
    Random random(2);
    for (int n_rows : {1, 2, 4, 5, 7, 8, 10, 12, 15, 16, 20, 25, 32, 33, 48, 63, 64}) {
        expect_equal({n_rows,
                      2,
                      ring,
                      false,
                      {512},
                      {{{BlockType::Q4_K, 20}, {BlockType::Q6_K, 16}, {BlockType::Q8_0, 7}}}},
                     random, pool);
    }
}

Case mixed_step(int n_rows, int n_blocks, int ring_bytes) {
    return {n_rows,
            n_blocks,
            ring_bytes,
            false,
            {2304, 96, 256, 4352, 512},
            {{{BlockType::Q4_K, 100}, {BlockType::Q6_K, 17}, {BlockType::F32, 6}},
             {{BlockType::Q8_0, 200}, {BlockType::Q5_1, 33}},
             {{BlockType::Q6_K, 700}},
             {{BlockType::Q5_K, 48}, {BlockType::Q4_K, 16}, {BlockType::IQ4_XS, 5}},
             {{BlockType::Q4_K, 31}, {BlockType::F16, 3}, {BlockType::Q6_K, 40}}}};
}

// Warps with many tiles take two together where rows and ring allow, with odd ones left over and
// the matrix's end inside a pair.
void test_pairs(cpu::ThreadPool& pool) {
    Random random(5);
    int turn = 0;
    for (int n_rows : {1, 3, 8, 9, 16, 17}) {
        for (int ring_bytes :
             {9216, 13440, 16896}) {  // too few for Q6_K, just enough, as an H200's
            for (int cols : {256, 2304, 4352}) {
                const int outputs = 200 + static_cast<int>(random() % 300);
                expect_equal({n_rows,
                              1,
                              block_warps * ring_bytes,
                              ++turn % 3 == 0,
                              {cols},
                              {{{BlockType::Q4_K, outputs}, {BlockType::Q6_K, 500 - outputs}}}},
                             random, pool);
            }
        }
    }
}

// The stream looks ahead over phases of other types and columns.
void test_steps(cpu::ThreadPool& pool) {
    Random random(3);
    for (int n_blocks = 1; n_blocks <= 5; ++n_blocks) {
        int ring_bytes = n_blocks % 2 ? ring : block_warps * (n_blocks * 4400);
        expect_equal(mixed_step(1 + 6 * (n_blocks - 1), n_blocks, ring_bytes), random, pool);
    }
}

#if defined(OJ_EMULATE)

// Whether a run comes to its end with the right bits. In a process of its own: a stream that did
// not wait goes where a bundle that has not arrived sends it.
bool is_right(Step& step, uint64_t seed) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        close(STDERR_FILENO);
        bool right = false;
        try {
            right = step.run_on_device(seed);
        } catch (const LaunchError&) {
        }
        _exit(right ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int wrong_runs(Step& step) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < 8; ++seed)
        wrong += !is_right(step, seed);
    return wrong;
}

void test_mutations(cpu::ThreadPool& pool) {
    Random random(4);
    Case c = {3, 2, ring, false, {2304, 512}, {{{BlockType::Q4_K, 100}}, {{BlockType::Q6_K, 90}}}};
    Step step(c, random);
    step.run_on_cpu(pool);
    expect(wrong_runs(step) == 0, "nothing missing: every run is right");
    missing = Missing::copy_wait;
    expect(wrong_runs(step) >= 6, "a missing wait for copies is found");
    missing = Missing::warp_sync;
    expect(wrong_runs(step) >= 4, "a missing meeting of the warp is found");
    missing = Missing::nothing;
}

#endif

}  // namespace
}  // namespace oj::cuda

int main() {
#if defined(__SANITIZE_THREAD__)
    std::printf("emulator: not run, its threads are fibers of one thread\n");
    return 0;
#endif
    oj::cpu::ThreadPool pool(1);
    oj::cuda::test_types(pool);
    oj::cuda::test_widths(pool);
    oj::cuda::test_pairs(pool);
    oj::cuda::test_steps(pool);
#if defined(OJ_EMULATE)
    oj::cuda::test_mutations(pool);
#endif
    if (oj::cuda::failures == 0) std::printf("CUDA products: the CPU's bits everywhere\n");
    return oj::cuda::failures == 0 ? 0 : 1;
}
