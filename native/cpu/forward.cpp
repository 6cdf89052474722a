#include "cpu/forward.h"

namespace oj::cpu {

void rotate_rows(Worker& worker, const Machine& m, const Batch& batch) {
    int half = m.h.rope_dim / 2;
    worker.share(batch.n_rows(), [&](int r) {
        float* cosines = m.scratch.rotation.data() + static_cast<size_t>(r) * m.h.rope_dim;
        for (int d = 0; d < half; ++d) {
            SinCos turn = rope_rotation(batch.rows[r].position, m.frequencies[d]);
            cosines[d] = turn.cosine;
            cosines[half + d] = turn.sine;
        }
    });
}

void norm_rows(Worker& worker, const Machine& m, const float* weight, int rows, Forms forms) {
    int n = m.h.n_embd;
    worker.share(rows, [&](int r) {
        const float* x = m.scratch.x.data() + static_cast<size_t>(r) * n;
        m.kernels.rms_norm(x, weight, n, m.h.rms_eps, m.scratch.input.row(r, n));
        m.scratch.input.quantize(m.kernels, forms, r, n, 0, n);
    });
    worker.barrier();
}

void quantize_rows(Worker& worker, const Machine& m, int rows, int cols, Forms forms) {
    int pieces = (cols + super_group - 1) / super_group;
    worker.share(rows * pieces, [&](int item) {
        int first = item % pieces * super_group;
        int n = first + super_group < cols ? super_group : cols - first;
        m.scratch.input.quantize(m.kernels, forms, item / pieces, cols, first, n);
    });
    worker.barrier();
}

void layer(Worker& worker, const Machine& m, const LayerWeights& w, const Batch& batch) {
    if (w.kind == LayerKind::attention) {
        attention(worker, m, w, batch);
    } else {
        delta_net(worker, m, w, batch);
    }
    feed_forward(worker, m, w, batch.n_rows());
}

void feed_forward(Worker& worker, const Machine& m, const LayerWeights& w, int rows) {
    Scratch& s = m.scratch;
    norm_rows(worker, m, w.ffn_norm, rows, forms_of({&w.ffn_gate, &w.ffn_up}));
    multiply(worker, m.kernels, s.input, rows,
             {{&w.ffn_gate, s.gate.data()}, {&w.ffn_up, s.up.data()}});
    worker.barrier();

    int cols = m.h.n_ff, pieces = (cols + super_group - 1) / super_group;
    Forms forms = forms_of({&w.ffn_down});
    worker.share(rows * pieces, [&](int item) {
        int r = item / pieces, first = item % pieces * super_group;
        int n = first + super_group < cols ? super_group : cols - first;
        size_t at = static_cast<size_t>(r) * cols + first;
        m.kernels.silu_mul(s.gate.data() + at, s.up.data() + at, n, s.input.row(r, cols) + first);
        s.input.quantize(m.kernels, forms, r, cols, first, n);
    });
    worker.barrier();
    multiply(worker, m.kernels, s.input, rows, {{&w.ffn_down, s.x.data(), true}});
    worker.barrier();
}

}  // namespace oj::cpu
