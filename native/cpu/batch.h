// The rows of one pass through layers, and which conversation each belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oj::cpu {

// Index of row r of a matrix of `cols` columns.
inline size_t offset(int r, int cols) {
    return static_cast<size_t>(r) * cols;
}

// Consecutive rows of one conversation at consecutive positions. The first `n_certain` advance the
// slot's state, the others are drafts.
struct Run {
    int slot;
    int first_row;
    int n_rows;
    int n_certain;
    int position;  // of the first row
    const int32_t* pages;
};

struct Row {
    int32_t token;
    int32_t position;
    const int32_t* pages;
};

// Neighbouring rows of a run: they read the same KV tiles.
struct RowGroup {
    int first_row;
    int n_rows;
};

struct Batch {
    static constexpr int group_rows = 8;

    std::vector<Run> runs;
    std::vector<Row> rows;
    std::vector<RowGroup> groups;
    int last_position = 0;  // the largest of all rows

    int n_rows() const { return static_cast<int>(rows.size()); }

    // Appends a run whose tokens start at `tokens`; first_row is filled in.
    void add(Run run, const int32_t* tokens) {
        run.first_row = n_rows();
        runs.push_back(run);
        for (int i = 0; i < run.n_rows; ++i) {
            rows.push_back({tokens[i], run.position + i, run.pages});
            if (i % group_rows == 0) groups.push_back({run.first_row + i, 0});
            ++groups.back().n_rows;
        }
        int last = run.position + run.n_rows - 1;
        if (run.n_rows > 0 && last > last_position) last_position = last;
    }
};

}  // namespace oj::cpu
