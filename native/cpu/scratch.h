// Buffers of one pass, sized once.
#pragma once

#include <algorithm>
#include <vector>

#include "cpu/activations.h"
#include "cpu/kernels.h"
#include "cpu/memory.h"
#include "model/model.h"

namespace oj::cpu {

struct Scratch {
    static constexpr int min_partials = 4096;  // split results kept at a time

    Scratch(const Hparams& h, int max_rows, int threads)
        : n_rows(max_rows),
          input(max_rows, std::max({2 * h.n_embd, h.n_ff, h.q_rows(), h.v_channels()})),
          x(rows(h.n_embd), "scratch"),
          hidden(rows(h.n_embd), "scratch"),
          rotation(rows(h.rope_dim), "scratch"),
          qkv(rows(std::max(h.conv_channels(), 2 * h.q_rows())), "scratch"),
          mixed(rows(h.conv_channels()), "scratch"),
          gate(rows(std::max(h.n_ff, h.v_channels())), "scratch"),
          up(rows(h.n_ff), "scratch"),
          key(rows(h.kv_rows()), "scratch"),
          value(rows(h.kv_rows()), "scratch"),
          query_codes(rows(h.q_rows()), "scratch"),
          query_scales(rows(h.q_rows()) / kv_group, "scratch"),
          alpha(rows(h.n_v_heads), "scratch"),
          beta(rows(h.n_v_heads), "scratch"),
          totals(rows(h.n_heads) * (h.head_dim + 2), "scratch"),
          n_partials(std::max(min_partials, max_rows * h.n_heads)),
          partials(static_cast<size_t>(n_partials) * (h.head_dim + 2), "scratch"),
          draft_state(static_cast<size_t>(threads) * h.state_dim * h.state_dim, "scratch"),
          tokens(threads) {
        for (std::vector<DeltaToken>& of_thread : tokens)
            of_thread.reserve(std::max(max_rows, OJ_MAX_DRAFTS));
    }

    size_t bytes() const {
        size_t floats = 0;
        for (const Pages<float>* pages :
             {&x, &hidden, &rotation, &qkv, &mixed, &gate, &up, &key, &value, &alpha, &beta,
              &query_scales, &totals, &partials, &draft_state}) {
            floats += pages->size();
        }
        size_t tokens_bytes = tokens.size() * tokens[0].capacity() * sizeof(DeltaToken);
        size_t codes_bytes = query_codes.size() * sizeof(int16_t);
        return floats * sizeof(float) + codes_bytes + tokens_bytes + input.bytes();
    }

    size_t rows(int columns) const { return static_cast<size_t>(n_rows) * columns; }

    int n_rows;
    Activations input;      // of the next matrix products
    Pages<float> x;         // residual stream [n_embd]
    Pages<float> hidden;    // post-norm hidden [n_embd]
    Pages<float> rotation;  // cosines, then sines [rope_dim / 2] each
    Pages<float> qkv;       // DeltaNet: raw q | k | v; attention: q and gate of every head
    Pages<float> mixed;     // DeltaNet: q | k | v after convolution and norms
    Pages<float> gate;      // DeltaNet: z; FFN: gate
    Pages<float> up;
    Pages<float> key, value;
    Pages<int16_t> query_codes;  // attention over q8_0 pages: code16 of every head's query
    Pages<float> query_scales;
    Pages<float> alpha, beta;  // raw, then decay and beta [n_v_heads]
    Pages<float> totals;       // attention: folded splits [n_heads][max, sum, out]
    int n_partials;
    Pages<float> partials;                        // attention: splits not yet folded
    Pages<float> draft_state;                     // one S for each thread
    std::vector<std::vector<DeltaToken>> tokens;  // for each thread; never grow: jobs cannot throw
};

}  // namespace oj::cpu
