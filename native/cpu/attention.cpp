// Gated full attention over paged KV: store first, then read what was stored.
#include <algorithm>
#include <cmath>

#include "cpu/forward.h"

namespace oj::cpu {

namespace {

// Norm and partial rotation of one query or key head, in place; pairs (d, d + rope_dim / 2).
void norm_and_rotate(const Machine& m, const float* weight, int r, float* head) {
    m.kernels.rms_norm(head, weight, m.h.head_dim, m.h.rms_eps, head);
    int half = m.h.rope_dim / 2;
    const float* cosines = m.scratch.rotation.data() + offset(r, m.h.rope_dim);
    const float* sines = cosines + half;
    for (int d = 0; d < half; ++d) {
        float low = head[d], high = head[d + half];
        head[d] = fmaf(low, cosines[d], -(high * sines[d]));
        head[d + half] = fmaf(low, sines[d], high * cosines[d]);
    }
}

void store_kv(const Machine& m, const AttentionWeights& w, const Row& row, int r, int head) {
    int dim = m.h.head_dim, page = row.pages[row.position / kv_page];
    float* key = m.scratch.key.data() + offset(r, m.h.kv_rows()) + head * dim;
    const float* value = m.scratch.value.data() + offset(r, m.h.kv_rows()) + head * dim;
    norm_and_rotate(m, w.k_norm, r, key);
    m.kv.codec.store_key(m.kv.keys(page, w.kv_layer, head), row.position % kv_page, key);
    m.kv.codec.store_value(m.kv.values(page, w.kv_layer, head), row.position % kv_page, value);
}

void prepare_query(const Machine& m, const AttentionWeights& w, int r, int head) {
    int dim = m.h.head_dim;
    float* query = m.scratch.qkv.data() + offset(r, 2 * m.h.q_rows()) + head * 2 * dim;
    norm_and_rotate(m, w.q_norm, r, query);
    float scale = 1.0f / std::sqrt(static_cast<float>(dim));
    for (int d = 0; d < dim; ++d)
        query[d] *= scale;
    if (m.kv.codec.kind == OJ_KV_Q8_0) {
        size_t at = offset(r, m.h.q_rows()) + head * dim;
        m.kernels.quantize16(query, dim, m.scratch.query_codes.data() + at,
                             m.scratch.query_scales.data() + at / kv_group);
    }
}

Query query_of(const Machine& m, int r, int head) {
    int dim = m.h.head_dim;
    size_t at = offset(r, m.h.q_rows()) + head * dim;
    return {m.scratch.qkv.data() + offset(r, 2 * m.h.q_rows()) + head * 2 * dim,
            m.scratch.query_codes.data() + at, m.scratch.query_scales.data() + at / kv_group};
}

// The splits that one wave works on, and where their results are kept.
struct Wave {
    int first_split;
    int n_splits;

    float* partial(const Machine& m, int r, int head, int split) const {
        size_t at = (offset(r, m.h.n_heads) + head) * n_splits + (split - first_split);
        return m.scratch.partials.data() + at * (m.h.head_dim + 2);
    }
};

void clear_split(float* state, int dim) {
    state[0] = -INFINITY;
    std::fill_n(state + 1, dim + 1, 0.0f);
}

// One split of one KV head for the query heads of a few neighbouring rows.
void attend_split(const Machine& m, const AttentionWeights& w, const Batch& batch,
                  const RowGroup& group, int kv_head, int split, const Wave& wave) {
    int per_kv = m.h.n_heads / m.h.n_kv_heads, dim = m.h.head_dim;
    int n_queries = group.n_rows * per_kv;
    const Row& last = batch.rows[group.first_row + group.n_rows - 1];
    int begin = split * kv_split, end = std::min(begin + kv_split, last.position + 1);
    for (int position = begin; position < end; position += kv_page) {
        AttentionTile tile = {};
        int page = last.pages[position / kv_page];
        tile.keys = m.kv.keys(page, w.kv_layer, kv_head);
        tile.values = m.kv.values(page, w.kv_layer, kv_head);
        tile.dim = dim;
        for (int q = 0; q < n_queries; ++q) {
            int r = group.first_row + q / per_kv, head = kv_head * per_kv + q % per_kv;
            int i = tile.queries++;
            tile.query[i] = query_of(m, r, head);
            tile.state[i] = wave.partial(m, r, head, split);
            if (position == begin) clear_split(tile.state[i], dim);
            tile.visible[i] = std::clamp(batch.rows[r].position + 1 - position, 0, kv_page);
            if (tile.queries == max_queries || q == n_queries - 1) {
                m.kernels.attend[m.kv.codec.kind](tile);
                tile.queries = 0;
            }
        }
    }
}

// Folds a wave's splits into the row's total; after the last wave, the gated result.
void fold_head(const Machine& m, const Batch& batch, int r, int head, const Wave& wave,
               bool is_last) {
    int dim = m.h.head_dim, splits = batch.rows[r].position / kv_split + 1;
    float* total = m.scratch.totals.data() + (offset(r, m.h.n_heads) + head) * (dim + 2);
    int end = std::min(splits, wave.first_split + wave.n_splits);
    for (int split = wave.first_split; split < end; ++split) {
        const float* part = wave.partial(m, r, head, split);
        if (split == 0) {
            std::copy_n(part, dim + 2, total);
        } else {
            m.kernels.fold_split(total, part, dim);
        }
    }
    if (!is_last) return;
    const float* gate = m.scratch.qkv.data() + offset(r, 2 * m.h.q_rows()) + (head * 2 + 1) * dim;
    float* out = m.scratch.input.row(r, m.h.q_rows()) + head * dim;
    for (int d = 0; d < dim; ++d)
        out[d] = total[2 + d] / total[1];
    m.kernels.sigmoid_mul(out, gate, dim, out);
}

void attend_rows(Worker& worker, const Machine& m, const AttentionWeights& w, const Batch& batch) {
    int rows = batch.n_rows(), heads = m.h.n_heads, kv_heads = m.h.n_kv_heads;
    if (rows == 0) return;  // a step that only folds
    int n_groups = static_cast<int>(batch.groups.size());
    int splits = batch.last_position / kv_split + 1;
    int per_wave = std::clamp(m.scratch.n_partials / (rows * heads), 1, splits);
    for (int first = 0; first < splits; first += per_wave) {
        Wave wave = {first, std::min(per_wave, splits - first)};
        worker.share(n_groups * kv_heads * wave.n_splits, [&](int item) {
            int split = first + item % wave.n_splits;
            int kv_head = item / wave.n_splits % kv_heads;
            const RowGroup& group = batch.groups[item / wave.n_splits / kv_heads];
            attend_split(m, w, batch, group, kv_head, split, wave);
        });
        worker.barrier();
        bool is_last = first + per_wave >= splits;
        worker.share(rows * heads, [&](int item) {
            fold_head(m, batch, item / heads, item % heads, wave, is_last);
        });
        worker.barrier();
    }
}

}  // namespace

void attention_kv(Worker& worker, const Machine& m, const LayerWeights& layer, const Batch& batch) {
    const AttentionWeights& w = layer.attention;
    Scratch& s = m.scratch;
    int rows = batch.n_rows(), kv_heads = m.h.n_kv_heads;
    norm_rows(worker, m, layer.attn_norm, rows, forms_of({&w.k, &w.v}));
    multiply(worker, m.kernels, s.input, rows, {{&w.k, s.key.data()}, {&w.v, s.value.data()}});
    worker.barrier();
    worker.share(rows * kv_heads, [&](int item) {
        int r = item / kv_heads;
        store_kv(m, w, batch.rows[r], r, item % kv_heads);
    });
    worker.barrier();
}

void attention(Worker& worker, const Machine& m, const LayerWeights& layer, const Batch& batch) {
    const AttentionWeights& w = layer.attention;
    Scratch& s = m.scratch;
    int rows = batch.n_rows(), heads = m.h.n_heads, kv_heads = m.h.n_kv_heads;
    norm_rows(worker, m, layer.attn_norm, rows, forms_of({&w.q, &w.k, &w.v}));
    multiply(worker, m.kernels, s.input, rows,
             {{&w.q, s.qkv.data()}, {&w.k, s.key.data()}, {&w.v, s.value.data()}});
    worker.barrier();
    worker.share(rows * (heads + kv_heads), [&](int item) {
        int r = item / (heads + kv_heads), head = item % (heads + kv_heads);
        if (head < heads) {
            prepare_query(m, w, r, head);
        } else {
            store_kv(m, w, batch.rows[r], r, head - heads);
        }
    });
    worker.barrier();
    attend_rows(worker, m, w, batch);
    quantize_rows(worker, m, rows, m.h.q_rows(), forms_of({&w.output}));
    multiply(worker, m.kernels, s.input, rows, {{&w.output, s.x.data(), true}});
    worker.barrier();
}

}  // namespace oj::cpu
