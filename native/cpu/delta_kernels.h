// The DeltaNet recurrence of 32 columns of one head's state. Included like gemm_kernels.h.
#pragma once

// Registers of one state row k: `parts` for each of two strips of 16 columns.
constexpr int delta_parts = delta_columns / Simd::lanes;
constexpr int delta_at_once = delta_parts < 2 ? delta_parts : 2;  // registers with their own chains
constexpr int delta_chains = 4;                                   // k % 4

struct Columns {
    float* at[delta_at_once];  // state row 0; rows are strip_columns floats apart

    Columns(float* state, int dim, int first) {
        for (int i = 0; i < delta_at_once; ++i) {
            int column = first + i * Simd::lanes;
            at[i] = state + (int64_t)(column / strip_columns) * strip_columns * dim +
                    column % strip_columns;
        }
    }
};

inline Simd::F32 join(const Simd::F32* chains) {
    return Simd::add(Simd::add(chains[0], chains[1]), Simd::add(chains[2], chains[3]));
}

template <bool wants_out>
inline void delta_token(const Columns& state, int dim, int first, const DeltaToken& token) {
    Simd::F32 decay = Simd::set(token.decay);
    Simd::F32 sum[delta_at_once][delta_chains];
    for (auto& chains : sum) {
        for (Simd::F32& chain : chains)
            chain = Simd::set(0.0f);
    }
    for (int k = 0; k < dim; k += delta_chains) {
        for (int j = 0; j < delta_chains; ++j) {
            Simd::F32 key = Simd::set(token.key[k + j]);
            for (int i = 0; i < delta_at_once; ++i) {
                Simd::F32 s = Simd::mul(Simd::load(state.at[i] + (k + j) * strip_columns), decay);
                sum[i][j] = Simd::fma(s, key, sum[i][j]);
            }
        }
    }
    Simd::F32 delta[delta_at_once];
    for (int i = 0; i < delta_at_once; ++i) {
        Simd::F32 value = Simd::load(token.value + first + i * Simd::lanes);
        delta[i] = Simd::mul(Simd::set(token.beta), Simd::sub(value, join(sum[i])));
        for (Simd::F32& chain : sum[i])
            chain = Simd::set(0.0f);
    }
    for (int k = 0; k < dim; k += delta_chains) {
        for (int j = 0; j < delta_chains; ++j) {
            Simd::F32 key = Simd::set(token.key[k + j]);
            Simd::F32 query = Simd::set(wants_out ? token.query[k + j] : 0.0f);
            for (int i = 0; i < delta_at_once; ++i) {
                float* at = state.at[i] + (k + j) * strip_columns;
                Simd::F32 s = Simd::fma(key, delta[i], Simd::mul(Simd::load(at), decay));
                Simd::store(at, s);
                __builtin_prefetch(at + delta_columns * dim);  // the strips after these
                if (wants_out) sum[i][j] = Simd::fma(s, query, sum[i][j]);
            }
        }
    }
    if (!wants_out) return;
    for (int i = 0; i < delta_at_once; ++i) {
        Simd::store(token.out + first + i * Simd::lanes, join(sum[i]));
    }
}

void delta(float* state, int dim, int first, const DeltaToken* tokens, int n) {
    for (int column = first; column < first + delta_columns;
         column += delta_at_once * Simd::lanes) {
        Columns columns(state, dim, column);
        for (int t = 0; t < n; ++t) {
            if (tokens[t].out != nullptr) {
                delta_token<true>(columns, dim, column, tokens[t]);
            } else {
                delta_token<false>(columns, dim, column, tokens[t]);
            }
        }
    }
}
