// The host's part of the partition: which bundles each warp multiplies.
#pragma once

#include <vector>

#include "cuda/partition.h"
#include "cuda/tile.h"

namespace oj::cuda {

// A phase's units one after the other, shared out part by part: where each warp's begin, and the
// end.
class Sharing {
public:
    Sharing(const Phase& p, int n_blocks)
        : p_(p), n_blocks_(n_blocks), bytes_(static_cast<size_t>(n_blocks) * block_warps) {}

    std::vector<Unit> rows() {
        share_whole_segments();
        if (n_parts(p_) == 2) share_rest();
        return first_;
    }

private:
    bool is_rest(const Unit& u) const { return u.segment >= whole_segments(p_.matrices[0]); }
    bool ends() const { return same_unit(next_, end_unit(p_)); }
    int64_t next_bytes() const { return unit_bytes(p_.matrices[next_.matrix], next_); }
    void give(size_t warp) {
        bytes_[warp] += next_bytes();
        next_ = next_unit(p_, next_);
    }

    // A warp's units are those that begin in its share of all bytes.
    void share_whole_segments() {
        int64_t all = 0, before = 0;
        const auto n = static_cast<int64_t>(bytes_.size());
        for (Unit u = next_; !same_unit(u, end_unit(p_)) && !is_rest(u); u = next_unit(p_, u))
            all += unit_bytes(p_.matrices[u.matrix], u);
        for (int64_t warp = 0; warp < n; ++warp) {
            first_.push_back(next_);
            while (before * n < all * (warp + 1) && !ends() && !is_rest(next_)) {
                before += next_bytes();
                give(static_cast<size_t>(warp));
            }
        }
        first_.push_back(next_);
    }

    // A block gets what it lacks of its share; its warps are filled up to one level.
    void share_rest() {
        const int64_t all = weight_bytes(p_);
        int64_t before = 0;
        for (int block = 0; block < n_blocks_; ++block) {
            const size_t first_warp = static_cast<size_t>(block) * block_warps;
            for (int w = 0; w < block_warps; ++w)
                before += bytes_[first_warp + static_cast<size_t>(w)];
            const int64_t share = all * (block + 1) / n_blocks_;
            int n_units = 0;
            Unit last = next_;
            for (; !same_unit(last, end_unit(p_)); last = next_unit(p_, last), ++n_units) {
                const int64_t unit = unit_bytes(p_.matrices[last.matrix], last);
                if (block + 1 < n_blocks_ && before + unit / 2 > share) break;
                before += unit;
            }
            share_among_warps(first_warp, n_units);
        }
        first_.push_back(next_);
    }

    // The lowest level that leaves room for these units, warp after warp.
    void share_among_warps(size_t first_warp, int n_units) {
        int64_t low = 0, high = weight_bytes(p_);
        while (low < high) {
            const int64_t level = (low + high) / 2;
            if (fill_up(first_warp, n_units, level, nullptr)) {
                high = level;
            } else {
                low = level + 1;
            }
        }
        int counts[block_warps];
        fill_up(first_warp, n_units, high, counts);
        for (int w = 0; w < block_warps; ++w) {
            first_.push_back(next_);
            for (int i = 0; i < counts[w]; ++i)
                give(first_warp + static_cast<size_t>(w));
        }
    }

    // Whether the next units have room below this level, and how many each warp takes then.
    bool fill_up(size_t first_warp, int n_units, int64_t level, int* counts) const {
        Unit u = next_;
        for (int w = 0; w < block_warps; ++w) {
            int64_t bytes = bytes_[first_warp + static_cast<size_t>(w)];
            int count = 0;
            for (; n_units > 0; --n_units, ++count, u = next_unit(p_, u)) {
                bytes += unit_bytes(p_.matrices[u.matrix], u);
                if (bytes > level) break;
            }
            if (counts != nullptr) counts[w] = count;
        }
        return n_units == 0;
    }

    const Phase& p_;
    const int n_blocks_;
    std::vector<int64_t> bytes_;  // of each warp
    std::vector<Unit> first_;
    Unit next_ = {};  // not given to a warp yet
};

// The next units of a range, as many as go together: off the range.
inline Bundle take_bundle(const Phase& p, UnitRange& units) {
    const Unit first = units.first, second = next_unit(p, first);
    const Matrix& m = p.matrices[first.matrix];
    const auto type = static_cast<BlockType>(m.type);
    const TileFormat f = tile_format(type);
    const bool is_pair = is_common(type) && second.matrix == first.matrix &&
                         second.segment == first.segment && !same_unit(second, units.end);
    units.first = is_pair ? next_unit(p, second) : second;
    Bundle bundle = {};
    bundle.from = m.data + unit_offset(m, first);
    bundle.bytes = static_cast<int32_t>(unit_bytes(m, first));
    if (f.code_bits == 0) bundle.from = m.data + first.tile * m.tile_bytes, bundle.bytes = 0;
    bundle.tile_bytes = static_cast<int32_t>(m.tile_bytes);
    bundle.tile = first.tile;
    bundle.product = static_cast<int16_t>(p.product);
    bundle.segment = first.segment;
    bundle.matrix = first.matrix;
    bundle.block_bytes = static_cast<int16_t>(block_bytes(f, block_steps));
    bundle.tiles = is_pair ? 2 : 1;
    bundle.piece_blocks = f.group == super_group ? 2 : 1;  // small groups may end within a block
    return bundle;
}

// What Schedule.bundles and first_bundles hold.
struct Shares {
    std::vector<Bundle> bundles;
    std::vector<int32_t> first;
};

// Products in their order.
inline Shares share_products(const std::vector<const Phase*>& products, int n_blocks) {
    std::vector<std::vector<Unit>> units;
    for (const Phase* p : products)
        units.push_back(Sharing(*p, n_blocks).rows());
    const size_t n_warps = static_cast<size_t>(n_blocks) * block_warps;
    Shares shares;
    const auto mark = [&] { shares.first.push_back(static_cast<int32_t>(shares.bundles.size())); };
    for (size_t warp = 0; warp < n_warps; ++warp) {
        for (size_t i = 0; i < products.size(); ++i) {
            mark();
            for (size_t at = warp; at < units[i].size(); at += n_warps + 1) {
                UnitRange left = {units[i][at], units[i][at + 1]};
                while (!same_unit(left.first, left.end))
                    shares.bundles.push_back(take_bundle(*products[i], left));
            }
        }
        mark();
    }
    return shares;
}

}  // namespace oj::cuda
