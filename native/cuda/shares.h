// The host's part of the partition: where each warp's units of a multiply phase begin.
#pragma once

#include <vector>

#include "cuda/partition.h"

namespace oj::cuda {

// A phase's units one after the other, shared out into the rows of Schedule.first_units.
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

// A phase's rows of Schedule.first_units, one a part.
inline std::vector<Unit> share_units(const Phase& p, int n_blocks) {
    return Sharing(p, n_blocks).rows();
}

}  // namespace oj::cuda
