// Attention on the device gives the CPU kernels' bits: stored pages, queries, splits and folds, for
// every grouping of rows and heads, around split edges and over several waves; whatever the number
// of blocks and the order of threads.
#include "cuda/attention.cuh"

#include "cpu/kv_codec.h"
#include "cuda_phase_harness.h"

namespace oj::cuda {
namespace {

constexpr float eps = 1e-6f;
constexpr int kv_layers = 2, kv_layer = 1;
const cpu::Kernels& kernels = cpu::select_kernels();

using Floats = std::vector<float>;

struct Heads {
    int n_heads, n_kv_heads, head_dim, rope_dim;
};

struct Rows {
    int position, n_rows;
};

struct Case {
    std::string name;
    Heads heads;
    std::vector<Rows> runs;
    int wave_splits;
    oj_kv_codec codec = OJ_KV_Q8_0;
    bool draft_pass = false;  // of rows alone; every second one drafts no more
};

class AttentionTest {
public:
    AttentionTest(const Case& test, Launch launch)
        : case_(test),
          launch_(launch),
          random_(launch.seed),
          codec_(test.codec, test.heads.head_dim) {
        Dims& d = c_.dims;
        d.n_heads = test.heads.n_heads;
        d.n_kv_heads = test.heads.n_kv_heads;
        d.head_dim = test.heads.head_dim;
        d.rope_dim = test.heads.rope_dim;
        d.rms_eps = eps;
        describe_rows();
        make_buffers();
        fill_history();
    }

    void run() {
        p_.draft_pass = case_.draft_pass;
        run_phase<phase_attn_prepare>(c_, p_, launch_);
        store_rows();
        check_pages(case_.name + ": stored pages");
        int waves = (last_position_ / kv_split + case_.wave_splits) / case_.wave_splits;
        for (p_.wave = 0; p_.wave < waves; ++p_.wave) {
            run_phase<phase_attn_splits>(c_, p_, launch_);
            run_phase<phase_attn_fold>(c_, p_, launch_);
        }
        for (size_t r = 0; r < rows_.size(); ++r) {
            if (rows_[r].position < 0) continue;
            Floats out(c_.dims.q_rows());
            for (int head = 0; head < c_.dims.n_heads; ++head)
                attend(static_cast<int>(r), head, out.data() + head * c_.dims.head_dim);
            expect(holds_row(c_.scratch.input, p_.forms, static_cast<int>(r), out),
                   case_.name + ": row " + std::to_string(r) + ", " +
                       std::to_string(launch_.n_blocks) + " blocks");
        }
    }

    // Keys and values alone, as the MTP block stores them.
    void run_kv_only() {
        p_.kv_only = 1;
        run_phase<phase_attn_prepare>(c_, p_, launch_);
        store_rows();
        check_pages(case_.name + ": pages stored without queries");
    }

private:
    void describe_rows() {
        StepView view = {};
        for (size_t i = 0; i < case_.runs.size(); ++i) {
            Run run = {};
            run.first_row = static_cast<int>(rows_.size());
            run.n_rows = case_.runs[i].n_rows;
            run.position = case_.runs[i].position;
            run.first_page = static_cast<int>(pages_.size());
            run.n_pages = (run.position + run.n_rows - 1) / kv_page + 1;
            for (int r = 0; r < run.n_rows; ++r) {
                if (r % group_rows == 0) groups_.push_back({run.first_row + r, 0});
                ++groups_.back().n_rows;
                rows_.push_back({0, run.position + r, static_cast<int>(i), -1});
            }
            if (case_.draft_pass && i % 2 == 1) rows_.back().position = -1;
            last_position_ = std::max(last_position_, run.position + run.n_rows - 1);
            for (int page = 0; page < run.n_pages; ++page)
                pages_.push_back(n_pages_++);
            runs_.push_back(run);
        }
        for (size_t i = pages_.size(); i > 1; --i)  // in no order
            std::swap(pages_[i - 1], pages_[random_.whole(0, static_cast<int>(i) - 1)]);
        view.n_rows = static_cast<int>(rows_.size());
        view.n_runs = static_cast<int>(runs_.size());
        view.n_groups = static_cast<int>(groups_.size());
        view.wave_splits = case_.wave_splits;
        view.rows = memory_.copy(rows_);
        view.runs = memory_.copy(runs_);
        view.groups = memory_.copy(groups_);
        view.pages = memory_.copy(pages_);
        (case_.draft_pass ? c_.draft : c_.step) = view;
    }

    void make_buffers() {
        const Dims& d = c_.dims;
        Scratch& s = c_.scratch;
        q_norm_ = random_.normals(d.head_dim);
        k_norm_ = random_.normals(d.head_dim);
        p_.attention = {memory_.copy(q_norm_), memory_.copy(k_norm_), kv_layer};
        p_.forms = {1, d.q_rows() % 256 == 0, 1};
        s.qkv = random_product(&memory_, &random_, 2 * d.q_rows(), 2, 2.0f);
        s.key = random_product(&memory_, &random_, d.kv_rows(), 3);
        s.value = random_product(&memory_, &random_, d.kv_rows(), 1);
        s.input = make_input(&memory_, d.q_rows());
        rotation_ = random_.normals(size_t{max_step_rows} * d.rope_dim);
        s.rotation = memory_.copy(rotation_);
        int64_t row_heads = int64_t{max_step_rows} * d.n_heads;
        s.query = memory_.take<float>(row_heads * d.head_dim);
        s.query_codes = memory_.take<int8_t>(query_code_bytes(d));
        s.query_scales = memory_.take<float>(row_heads * d.head_dim / kv_group);
        s.partials = memory_.take<float>(row_heads * case_.wave_splits * (d.head_dim + 2));
        s.totals = memory_.take<float>(row_heads * (d.head_dim + 2));

        KvView& kv = c_.kv;
        kv.codec = case_.codec;
        kv.block_bytes = kv_block_bytes(kv.codec, d.head_dim);
        kv.head_bytes = 2 * kv.block_bytes;
        kv.layer_bytes = d.n_kv_heads * kv.head_bytes;
        kv.page_bytes = kv_layers * kv.layer_bytes;
        kv.data = memory_.take<uint8_t>(n_pages_ * kv.page_bytes);
        expected_ = kv;
        expected_.data = memory_.take<uint8_t>(n_pages_ * kv.page_bytes);
        host_.resize(size_t(n_pages_) * d.n_kv_heads * codec_.head_bytes());
        expect(static_cast<size_t>(kv.block_bytes) == codec_.block_bytes, "size of a page's block");
    }

    uint8_t* host_block(int page, int head, bool is_key) {
        size_t at = size_t(page) * c_.dims.n_kv_heads + head;
        return host_.data() + at * codec_.head_bytes() + (is_key ? 0 : codec_.block_bytes);
    }

    // The page's bytes on the host, and those that the device should have.
    void store(int page, int head, int position, bool is_key, const float* x) {
        uint8_t* host = host_block(page, head, is_key);
        if (is_key) {
            codec_.store_key(host, position, x);
        } else {
            codec_.store_value(host, position, x);
        }
        int dim = c_.dims.head_dim;
        uint8_t* block =
            is_key ? expected_.keys(page, kv_layer, head) : expected_.values(page, kv_layer, head);
        for (int d = 0; d < dim; ++d) {
            if (case_.codec == OJ_KV_F16) {
                int at = is_key ? d * kv_page + position : position * dim + d;
                reinterpret_cast<uint16_t*>(block)[at] = kv_half(x[d]);
                continue;
            }
            auto* scales = reinterpret_cast<uint16_t*>(block);
            uint16_t scale = reinterpret_cast<uint16_t*>(host)[d / kv_group * kv_page + position];
            scales[is_key ? key_scale_at(position, d / kv_group, dim)
                          : value_scale_at(position, d / kv_group)] = scale;
            int at = is_key ? key_code_at(position, d, dim) : value_code_at(position, d);
            block[kv_scales_bytes(OJ_KV_Q8_0, dim) + at] =
                static_cast<uint8_t>(kv_code(x[d], kv_factor(scale)));
        }
    }

    // What earlier steps stored.
    void fill_history() {
        for (const Run& run : runs_) {
            for (int position = 0; position < run.position; ++position) {
                int page = pages_[run.first_page + position / kv_page];
                for (int head = 0; head < c_.dims.n_kv_heads; ++head) {
                    Floats key = random_.normals(c_.dims.head_dim);
                    Floats value = random_.normals(c_.dims.head_dim);
                    store(page, head, position % kv_page, true, key.data());
                    store(page, head, position % kv_page, false, value.data());
                }
            }
        }
        std::memcpy(c_.kv.data, expected_.data, static_cast<size_t>(n_pages_ * c_.kv.page_bytes));
    }

    void norm_and_rotate(const Floats& weight, int r, float* head) const {
        kernels.rms_norm(head, weight.data(), c_.dims.head_dim, eps, head);
        int half = c_.dims.rope_dim / 2;
        const float* cosines = rotation_.data() + r * c_.dims.rope_dim;
        for (int d = 0; d < half; ++d) {
            float low = head[d], high = head[d + half];
            head[d] = fmaf(low, cosines[d], -(high * cosines[half + d]));
            head[d + half] = fmaf(low, cosines[half + d], high * cosines[d]);
        }
    }

    int page_of(int r) const {
        return pages_[runs_[rows_[r].run].first_page + rows_[r].position / kv_page];
    }

    void store_rows() {
        for (int r = 0; r < static_cast<int>(rows_.size()); ++r) {
            if (rows_[r].position < 0) continue;
            Floats keys = summed(c_.scratch.key, r), values = summed(c_.scratch.value, r);
            for (int head = 0; head < c_.dims.n_kv_heads; ++head) {
                float* key = keys.data() + head * c_.dims.head_dim;
                norm_and_rotate(k_norm_, r, key);
                int position = rows_[r].position % kv_page;
                store(page_of(r), head, position, true, key);
                store(page_of(r), head, position, false, values.data() + head * c_.dims.head_dim);
            }
        }
    }

    void check_pages(const std::string& name) {
        size_t bytes = static_cast<size_t>(n_pages_ * c_.kv.page_bytes);
        expect(std::memcmp(c_.kv.data, expected_.data, bytes) == 0, name);
    }

    // One row's head as the CPU computes it.
    void attend(int r, int head, float* out) {
        int dim = c_.dims.head_dim, kv_head = head / (c_.dims.n_heads / c_.dims.n_kv_heads);
        Floats packed = summed(c_.scratch.qkv, r);
        float* query = packed.data() + 2 * head * dim;
        norm_and_rotate(q_norm_, r, query);
        float scale = 1.0f / std::sqrt(static_cast<float>(dim));
        for (int d = 0; d < dim; ++d)
            query[d] *= scale;
        std::vector<int16_t> codes(dim);
        Floats scales(dim / kv_group), total, part(dim + 2);
        kernels.quantize16(query, dim, codes.data(), scales.data());
        int last = rows_[r].position;
        for (int begin = 0; begin <= last; begin += kv_page) {
            if (begin % kv_split == 0) {
                if (begin > 0) fold(&total, part);
                part.assign(dim + 2, 0.0f);
                part[0] = -INFINITY;
            }
            int page = pages_[runs_[rows_[r].run].first_page + begin / kv_page];
            cpu::AttentionTile tile = {};
            tile.keys = host_block(page, kv_head, true);
            tile.values = host_block(page, kv_head, false);
            tile.dim = dim;
            tile.queries = 1;
            tile.query[0] = {query, codes.data(), scales.data()};
            tile.visible[0] = std::min(last + 1 - begin, kv_page);
            tile.state[0] = part.data();
            kernels.attend[case_.codec](tile);
        }
        fold(&total, part);
        for (int d = 0; d < dim; ++d)
            out[d] = total[2 + d] / total[1];
        kernels.sigmoid_mul(out, query + dim, dim, out);
    }

    void fold(Floats* total, const Floats& part) const {
        if (total->empty()) {
            *total = part;
        } else {
            kernels.fold_split(total->data(), part.data(), c_.dims.head_dim);
        }
    }

    const Case& case_;
    Launch launch_;
    Random random_;
    Memory memory_;
    Context c_ = {};
    Phase p_ = {};
    cpu::KvCodec codec_;
    Floats q_norm_, k_norm_, rotation_;
    std::vector<Row> rows_;
    std::vector<Run> runs_;
    std::vector<RowGroup> groups_;
    std::vector<int32_t> pages_;
    int n_pages_ = 0, last_position_ = 0;
    std::vector<uint8_t> host_;  // pages of kv_layer in the CPU's order
    KvView expected_ = {};       // pages that the device should have
};

// Heads of the 27B (6 to a KV head), and others.
const Heads large = {12, 2, 256, 64}, eight = {8, 1, 64, 32}, one = {2, 2, 128, 128},
            five = {5, 1, 64, 16}, two = {2, 1, 256, 64};

const Case cases[] = {
    {"a decode step", large, {{40, 3}}, 1},
    {"around a split's edge", large, {{254, 4}}, 2},
    {"agents of different lengths", large, {{0, 1}, {255, 1}, {256, 1}, {257, 2}}, 1},
    {"a prompt's first rows", eight, {{0, 64}}, 1},
    {"a prompt over a split's edge", eight, {{250, 21}, {3, 9}}, 2},
    {"a head to each KV head", one, {{190, 5}, {70, 2}}, 1},
    {"five heads to a KV head", five, {{100, 7}}, 1},
    {"a long context", two, {{4098, 3}}, 3},
    {"a long context in many waves", one, {{4097, 1}, {600, 2}}, 2},
    {"more items than a block looks up together", one, std::vector<Rows>(20, {70, 1}), 1},
    {"f16 pages", five, {{254, 4}, {0, 3}}, 1, OJ_KV_F16},
    {"f16 pages, wide heads", two, {{600, 2}}, 2, OJ_KV_F16},
    {"drafts", large, {{63, 1}, {10, 1}, {300, 1}}, 1, OJ_KV_Q8_0, true},
};

}  // namespace
}  // namespace oj::cuda

int main() {
    using namespace oj::cuda;
    for (const Case& test : cases) {
        for (Launch launch : launches)
            AttentionTest(test, launch).run();
    }
    AttentionTest(cases[2], launches[1]).run_kv_only();
    AttentionTest(cases[10], launches[1]).run_kv_only();
    // More blocks than items: column groups are divided among blocks.
    AttentionTest(cases[0], {7, 4}).run();
    AttentionTest(cases[3], {40, 5}).run();
    return failures == 0 ? 0 : 1;
}
