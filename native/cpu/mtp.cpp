#include "cpu/mtp.h"

#include <algorithm>

namespace oj::cpu {

namespace {

// scratch.x = eh_proj [norm(embedding); norm(hidden before)].
void join_inputs(Worker& worker, const Machine& m, const MtpWeights& w, const MtpBatch& rows) {
    int n = m.h.n_embd, n_rows = rows.batch.n_rows();
    Forms forms = forms_of({&w.eh_proj});
    rotate_rows(worker, m, rows.batch);
    worker.share(n_rows, [&](int r) {
        float* joined = m.scratch.input.row(r, 2 * n);
        const Tensor& embed = *w.embed;
        dequantise_row(embed.type, embed.row(rows.batch.rows[r].token), n, joined);
        m.kernels.rms_norm(joined, w.enorm, n, m.h.rms_eps, joined);
        if (rows.before[r] != nullptr) {
            m.kernels.rms_norm(rows.before[r], w.hnorm, n, m.h.rms_eps, joined + n);
        } else {
            std::fill_n(joined + n, n, 0.0f);
        }
        m.scratch.input.quantize(m.kernels, forms, r, 2 * n, 0, 2 * n);
    });
    worker.barrier();
    multiply(worker, m.kernels, m.scratch.input, n_rows, {{&w.eh_proj, m.scratch.x.data()}});
    worker.barrier();
}

}  // namespace

void mtp_store(Worker& worker, const Machine& m, const MtpWeights& w, const MtpBatch& rows) {
    join_inputs(worker, m, w, rows);
    attention_kv(worker, m, w.layer, rows.batch);
}

void mtp_draft(Worker& worker, const Machine& m, const MtpWeights& w, const MtpBatch& rows,
               float* logits) {
    int n = m.h.n_embd, n_rows = rows.batch.n_rows();
    join_inputs(worker, m, w, rows);
    layer(worker, m, w.layer, rows.batch);
    norm_rows(worker, m, w.head_norm, n_rows, forms_of({&w.head}));
    worker.share(n_rows, [&](int r) { std::copy_n(m.scratch.input.row(r, n), n, rows.after[r]); });
    multiply(worker, m.kernels, m.scratch.input, n_rows, {{&w.head, logits}});
    worker.barrier();
}

}  // namespace oj::cpu
