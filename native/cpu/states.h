// What a conversation carries besides KV: recurrent state, and the drafts not yet decided about.
#pragma once

#include <cstring>
#include <vector>

#include "cpu/memory.h"
#include "model/model.h"

namespace oj::cpu {

// Floats of one state: per DeltaNet layer the last raw inputs of the convolution [taps -
// 1][channels] and S of every V head (kernels.h), then the post-norm hidden of the last history
// row.
struct StateLayout {
    int n_layers;
    int n_embd;
    int channels;
    int past_rows;    // taps - 1
    int head_floats;  // of one S
    int n_heads;

    StateLayout(const Hparams& h, int n_delta_layers)
        : n_layers(n_delta_layers),
          n_embd(h.n_embd),
          channels(h.conv_channels()),
          past_rows(h.conv_kernel - 1),
          head_floats(h.state_dim * h.state_dim),
          n_heads(h.n_v_heads) {}

    size_t conv_floats() const { return static_cast<size_t>(past_rows) * channels; }
    size_t layer_floats() const {
        return conv_floats() + static_cast<size_t>(n_heads) * head_floats;
    }
    size_t floats() const { return n_layers * layer_floats() + n_embd; }

    // Draft rows recorded for a later fold: per layer and row the raw and the convolved inputs, and
    // decay and beta of every V head; then the hidden rows.
    size_t record_row_floats() const { return 2 * size_t(channels) + 2 * size_t(n_heads); }
    size_t record_floats() const {
        return OJ_MAX_DRAFTS * (n_layers * record_row_floats() + n_embd);
    }
};

struct RecordRow {
    float* raw;    // [channels]
    float* mixed;  // [channels] after convolution, SiLU and norms: q | k | v
    float* decay;  // [n_heads]
    float* beta;   // [n_heads]
};

class States {
public:
    States(const StateLayout& layout, int n_slots, int n_snapshots)
        : layout_(layout),
          slots_(layout.floats() * n_slots, "recurrent states (agents)"),
          snapshots_(layout.floats() * n_snapshots, "snapshots"),
          records_(layout.record_floats() * n_slots, "draft records"),
          pending(n_slots, 0) {}

    const StateLayout& layout() const { return layout_; }

    float* conv(int slot, int layer) const {
        return slot_state(slot) + layer * layout_.layer_floats();
    }
    float* head(int slot, int layer, int head) const {
        return conv(slot, layer) + layout_.conv_floats() +
               static_cast<size_t>(head) * layout_.head_floats;
    }
    float* hidden(int slot) const {
        return slot_state(slot) + layout_.n_layers * layout_.layer_floats();
    }

    RecordRow record(int slot, int layer, int row) const {
        float* raw =
            records_.data() + slot * layout_.record_floats() +
            (static_cast<size_t>(layer) * OJ_MAX_DRAFTS + row) * layout_.record_row_floats();
        float* gates = raw + 2 * layout_.channels;
        return {raw, raw + layout_.channels, gates, gates + layout_.n_heads};
    }
    float* record_hidden(int slot, int row) const {
        return records_.data() + (slot + 1) * layout_.record_floats() -
               static_cast<size_t>(OJ_MAX_DRAFTS - row) * layout_.n_embd;
    }

    void reset(int slot) { std::memset(slot_state(slot), 0, bytes()); }
    void save(int slot, int snapshot) {
        std::memcpy(snapshot_data(snapshot), slot_state(slot), bytes());
    }
    void load(int snapshot, int slot) {
        std::memcpy(slot_state(slot), snapshot_data(snapshot), bytes());
    }

    void touch(size_t* budget) const {  // see Pages
        slots_.touch(budget);
        records_.touch(budget);
        snapshots_.touch(budget);
    }

    void populate(const std::atomic<bool>& stop) const {  // see Pages
        slots_.populate(stop);
        records_.populate(stop);
        snapshots_.populate(stop);
    }

    float* snapshot_data(int i) const { return snapshots_.data() + i * layout_.floats(); }
    size_t bytes() const { return layout_.floats() * sizeof(float); }

private:
    float* slot_state(int slot) const { return slots_.data() + slot * layout_.floats(); }

    StateLayout layout_;
    Pages<float> slots_;
    Pages<float> snapshots_;
    Pages<float> records_;

public:
    std::vector<int> pending;  // recorded draft rows of each slot
};

}  // namespace oj::cpu
