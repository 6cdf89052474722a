// Attention over q8_0 pages: every instruction set computes the contract of engine/numerics.h, here
// written once more in plain loops, bit for bit.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/kv_codec.h"
#include "engine/numerics.h"
#include "expect.h"
#include "model/error.h"

namespace oj::test {
namespace {

using cpu::AttentionTile;
using cpu::Kernels;
using cpu::KvCodec;
using cpu::max_queries;

using test::expect;
using test::failures;

using Floats = std::vector<float>;

// ---- the contract ----

struct Group {
    float scale = 0.0f;
    std::vector<int> codes;
};

float largest_of(const Floats& x) {
    float largest = 0.0f;
    for (float v : x)
        largest = std::fabs(v) > largest ? std::fabs(v) : largest;
    return largest;
}

Group code16(const Floats& x) {
    float largest = largest_of(x);
    Group group = {quantize16_scale(largest), {}};
    for (float v : x)
        group.codes.push_back(quantize_code(v, quantize16_factor(largest)));
    return group;
}

Group stored(const Floats& x) {
    uint16_t scale = kv_scale(largest_of(x));
    Group group = {half_to_float(scale), {}};
    for (float v : x)
        group.codes.push_back(kv_code(v, kv_factor(scale)));
    return group;
}

std::vector<Group> by_groups(const Floats& x, Group (*quantize)(const Floats&)) {
    std::vector<Group> groups;
    for (size_t i = 0; i < x.size(); i += kv_group)
        groups.push_back(quantize(Floats(x.begin() + i, x.begin() + i + kv_group)));
    return groups;
}

struct Tile {
    std::vector<Floats> keys, values;  // of kv_page positions
};

float score(const std::vector<Group>& query, const std::vector<Group>& key) {
    float s = 0.0f;
    for (size_t g = 0; g < query.size(); ++g) {
        int isum = 0;
        for (int d = 0; d < kv_group; ++d)
            isum += query[g].codes[d] * key[g].codes[d];
        s = fmaf(query[g].scale, key[g].scale * static_cast<float>(isum), s);
    }
    return s;
}

void expect_split(int code) {
    int high = code16_high(code), low = code16_low(code);
    bool fits = high >= -127 && high <= 127 && low >= -64 && low <= 63;
    expect(fits && 128 * high + low == code, "the split of code " + std::to_string(code));
}

void attend(const Floats& query, const Tile& tile, int visible, Floats& state) {
    if (visible == 0) return;
    Floats weights(kv_page, 0.0f);
    std::vector<Group> query_groups = by_groups(query, code16);
    float largest = state[0];
    for (int j = 0; j < visible; ++j) {
        weights[j] = score(query_groups, by_groups(tile.keys[j], stored));
        largest = weights[j] > largest ? weights[j] : largest;
    }
    for (int j = 0; j < visible; ++j)
        weights[j] = exp_f32(weights[j] - largest);
    float lanes[sum_lanes];
    for (int i = 0; i < sum_lanes; ++i)
        lanes[i] = weights[i] + weights[i + sum_lanes];
    float keep = exp_f32(state[0] - largest);
    state[0] = largest;
    state[1] = fmaf(state[1], keep, lane_tree(lanes));

    std::vector<std::vector<Group>> values;
    for (const Floats& value : tile.values)
        values.push_back(by_groups(value, stored));
    for (size_t g = 0; g < query_groups.size(); ++g) {
        Floats scaled(kv_page);
        for (int j = 0; j < kv_page; ++j)
            scaled[j] = weights[j] * values[j][g].scale;
        Group w = code16(scaled);
        for (int d = 0; d < kv_group; ++d) {
            int isum = 0;
            for (int j = 0; j < kv_page; ++j)
                isum += w.codes[j] * values[j][g].codes[d];
            float& out = state[2 + g * kv_group + d];
            out = fmaf(w.scale, static_cast<float>(isum), out * keep);
        }
    }
}

// ---- a few tiles by a kernel ----

struct Case {
    int dim = 0;
    std::vector<Floats> queries;
    std::vector<Tile> tiles;
    std::vector<std::vector<int>> visible;  // [tile][query]
    float start = 0.0f;                     // of every output
};

std::vector<Floats> start_states(const Case& c) {
    Floats state(c.dim + 2, c.start);
    state[0] = -INFINITY;
    state[1] = 0.0f;
    return std::vector<Floats>(c.queries.size(), state);
}

std::vector<Floats> by_contract(const Case& c) {
    std::vector<Floats> states = start_states(c);
    for (size_t t = 0; t < c.tiles.size(); ++t) {
        for (size_t q = 0; q < c.queries.size(); ++q)
            attend(c.queries[q], c.tiles[t], c.visible[t][q], states[q]);
    }
    return states;
}

std::vector<Floats> by_kernels(const Kernels& kernels, const Case& c) {
    KvCodec codec(OJ_KV_Q8_0, c.dim);
    std::vector<Floats> states = start_states(c);
    int n = static_cast<int>(c.queries.size());
    std::vector<std::vector<int16_t>> codes(n, std::vector<int16_t>(c.dim));
    std::vector<Floats> scales(n, Floats(c.dim / kv_group));
    for (int q = 0; q < n; ++q)
        kernels.quantize16(c.queries[q].data(), c.dim, codes[q].data(), scales[q].data());
    for (size_t t = 0; t < c.tiles.size(); ++t) {
        std::vector<uint8_t> keys(codec.block_bytes), values(codec.block_bytes);
        for (int j = 0; j < kv_page; ++j) {
            codec.store_key(keys.data(), j, c.tiles[t].keys[j].data());
            codec.store_value(values.data(), j, c.tiles[t].values[j].data());
        }
        AttentionTile tile = {};
        tile.keys = keys.data();
        tile.values = values.data();
        tile.dim = c.dim;
        tile.queries = n;
        for (int q = 0; q < n; ++q) {
            tile.query[q] = {c.queries[q].data(), codes[q].data(), scales[q].data()};
            tile.visible[q] = c.visible[t][q];
            tile.state[q] = states[q].data();
        }
        kernels.attend[OJ_KV_Q8_0](tile);
    }
    return states;
}

// ---- cases ----

class Random {
public:
    Floats floats(int n, float size) {
        Floats x(n);
        for (float& v : x)
            v = size * normal_(engine_);
        return x;
    }
    int below(int n) { return static_cast<int>(engine_() % n); }

private:
    std::mt19937 engine_{5};
    std::normal_distribution<float> normal_;
};

Case random_case(Random& random, int dim, int n_queries, int n_tiles) {
    Case c;
    c.dim = dim;
    for (int q = 0; q < n_queries; ++q)
        c.queries.push_back(random.floats(dim, 0.2f));
    const int seen[] = {64, 1, 0, 63, 32, 33, 31, 2};
    for (int t = 0; t < n_tiles; ++t) {
        Tile tile;
        for (int j = 0; j < kv_page; ++j) {
            tile.keys.push_back(random.floats(dim, 1.0f));
            tile.values.push_back(random.floats(dim, 1.0f));
        }
        c.tiles.push_back(tile);
        c.visible.emplace_back();
        for (int q = 0; q < n_queries; ++q)
            c.visible.back().push_back(t == 0 ? 64 : seen[random.below(8)]);
    }
    return c;
}

struct Edge {
    const char* name;
    std::function<void(Case&)> change;
};

void set_all(std::vector<Floats>& rows, float x) {
    for (Floats& row : rows) {
        for (size_t i = 0; i < row.size(); ++i)
            row[i] = i % 2 == 0 ? x : -x;
    }
}

std::vector<Edge> edges() {
    return {
        {"as it comes", [](Case&) {}},
        {"weights too small to scale",
         [](Case& c) {
             for (Tile& tile : c.tiles)
                 set_all(tile.keys, 1.0f);
             set_all(c.tiles[0].keys, -1.0f);
             set_all(c.queries, -4.0f);  // the first tile's scores are hundreds higher
         }},
        {"values too small to store", [](Case& c) { set_all(c.tiles[0].values, 1e-30f); }},
        {"subnormal scales",
         [](Case& c) {
             set_all(c.tiles[0].values, 3e-5f);
             set_all(c.tiles[0].keys, 2e-5f);
         }},
        {"every code at its limit",
         [](Case& c) {
             set_all(c.queries, 0.3f);
             for (Tile& tile : c.tiles) {
                 set_all(tile.keys, 2.0f);
                 set_all(tile.values, 2.0f);
             }
         }},
        {"beyond the codec",
         [](Case& c) {
             set_all(c.tiles[0].values, 1e9f);
             set_all(c.tiles[0].keys, INFINITY);
         }},
        {"negative zeros",
         [](Case& c) {
             set_all(c.queries, -0.0f);
             set_all(c.tiles[0].values, -0.0f);
             c.start = -0.0f;
         }},
        {"a query too small to scale", [](Case& c) { set_all(c.queries, 1e-31f); }},
        {"nothing seen",
         [](Case& c) {
             c.start = -0.0f;
             for (std::vector<int>& visible : c.visible)
                 visible[0] = 0;
         }},
    };
}

bool same_bits(const std::vector<Floats>& a, const std::vector<Floats>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
    }
    return true;
}

void check_kernels(const Kernels& kernels) {
    Random random;
    for (const Edge& edge : edges()) {
        for (int dim : {64, 128, 256}) {
            for (int n = 1; n <= max_queries; ++n) {
                Case c = random_case(random, dim, n, 3);
                edge.change(c);
                std::string where = std::string(kernels.name) + ", " + edge.name + ", " +
                                    std::to_string(dim) + " dimensions, " + std::to_string(n) +
                                    " queries";
                expect(same_bits(by_kernels(kernels, c), by_contract(c)), where);
            }
        }
    }
}

}  // namespace
}  // namespace oj::test

int main() {
    for (int code = -16256; code <= 16256; ++code)
        oj::test::expect_split(code);
    for (const char* isa : {"portable", "avx2", "avx512"}) {
        setenv("OPENJET_CPU_ISA", isa, 1);
        try {
            oj::test::check_kernels(oj::cpu::select_kernels());
        } catch (const oj::Error&) {
            std::printf("%s: not on this machine\n", isa);
        }
    }
    return oj::test::failures == 0 ? 0 : 1;
}
