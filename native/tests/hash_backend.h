// A backend whose "model" is a hash of the whole history: cheap, sensitive to every mistake of the
// engine above it, and choosing tokens with the engine's own sampling code. It keeps the history of
// each slot, writes the hash of the prefix into every KV position and checks, for each row, that
// all positions before it hold what they should; so a wrong page, fold, snapshot or copy is
// noticed.
#pragma once

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "engine/backend.h"
#include "engine/pages.h"
#include "engine/prefix_index.h"
#include "engine/sampling.h"
#include "scripted/token_snapshot.h"

namespace oj::test {

class HashBackend : public Backend {
public:
    HashBackend(int32_t n_vocab, const oj_backend_options& options)
        : n_vocab_(n_vocab),
          options_(options),
          slots_(static_cast<size_t>(options.n_slots)),
          snapshots_(static_cast<size_t>(options.n_snapshots)),
          kv_(static_cast<size_t>(options.n_pages) * kPageSize) {}

    std::atomic<bool> faulty{false};  // the next step fails

    void step(const oj_plan& plan, oj_seq_result* results) override {
        if (faulty) throw std::runtime_error("injected");
        require(plan.n_rows <= options_.max_rows, "max_rows");
        std::vector<bool> seen(slots_.size());
        for (int32_t i = 0; i < plan.n_seqs; ++i) {
            const oj_seq& seq = plan.seqs[i];
            require(!seen.at(static_cast<size_t>(seq.slot)), "a slot twice in a plan");
            seen[static_cast<size_t>(seq.slot)] = true;
            results[i] = oj_seq_result();
            run(seq, plan.tokens + seq.first_row, &results[i]);
        }
    }

    void reset(int slot) override { settled(slot).history.clear(); }
    void save(int slot, int snapshot) override {
        snapshots_.at(static_cast<size_t>(snapshot)) = settled(slot).history;
    }
    void load(int snapshot, int slot) override {
        settled(slot).history = snapshots_.at(static_cast<size_t>(snapshot));
    }
    void copy_page(int from, int to) override {
        std::copy_n(kv_.begin() + from * kPageSize, kPageSize, kv_.begin() + to * kPageSize);
    }
    oj_state_format state_format() const override {
        return {1, kPageSize * static_cast<int64_t>(sizeof(uint64_t)),
                token_snapshot_bytes(options_.n_pages)};
    }
    void export_page(int page, uint8_t* out) override {
        std::memcpy(out, &kv_.at(static_cast<size_t>(page) * kPageSize), page_bytes());
    }
    void import_page(int page, const uint8_t* bytes) override {
        std::memcpy(&kv_.at(static_cast<size_t>(page) * kPageSize), bytes, page_bytes());
    }
    void export_snapshot(int snapshot, int64_t offset, int64_t n, uint8_t* out) override {
        write_tokens(snapshots_.at(static_cast<size_t>(snapshot)), offset, n, out);
    }
    void import_snapshot(int snapshot, const uint8_t* bytes) override {
        snapshots_.at(static_cast<size_t>(snapshot)) = read_tokens(bytes);
    }
    void read(int, int, float*) override {}

    int64_t rows() const { return n_rows_; }

private:
    struct Slot {
        std::vector<int32_t> history;
        std::vector<int32_t> drafts;    // rows of the last step, not history yet
        std::vector<int32_t> proposed;  // by the step before
        std::vector<std::vector<float>> scores;
        Distribution q[OJ_MAX_DRAFTS];
    };

    size_t page_bytes() const { return static_cast<size_t>(state_format().page_bytes); }

    static void require(bool holds, const char* what) {
        if (!holds) throw std::logic_error(what);
    }

    Slot& settled(int slot) {
        Slot& found = slots_.at(static_cast<size_t>(slot));
        require(found.drafts.empty(), "pending drafts");
        return found;
    }

    void run(const oj_seq& seq, const int32_t* tokens, oj_seq_result* result) {
        Slot& slot = slots_.at(static_cast<size_t>(seq.slot));
        require(seq.fold >= 0 && seq.fold <= static_cast<int32_t>(slot.drafts.size()), "fold");
        slot.history.insert(slot.history.end(), slot.drafts.begin(),
                            slot.drafts.begin() + seq.fold);
        slot.drafts.clear();
        if (seq.n_rows == 0) return;
        n_rows_ += seq.n_rows;
        require(seq.pos == static_cast<int32_t>(slot.history.size()), "pos");
        require(pages_for(seq.pos + seq.n_rows) <= seq.n_pages, "pages");
        std::vector<int32_t> all = slot.history;
        all.insert(all.end(), tokens, tokens + seq.n_rows);
        check_kv(seq, all);
        slot.history.insert(slot.history.end(), tokens, tokens + seq.n_certain);
        slot.drafts.assign(tokens + seq.n_certain, tokens + seq.n_rows);
        if (seq.n_sampled == 0) return;
        require(seq.n_sampled == 1 + seq.n_rows - seq.n_certain, "n_sampled");
        if (seq.draft_source == OJ_DRAFT_MTP) {
            require(slot.drafts.size() <= slot.proposed.size() &&
                        std::equal(slot.drafts.begin(), slot.drafts.end(), slot.proposed.begin()),
                    "drafts are what was proposed");
        }
        choose(seq, slot, result);
        propose(seq, slot, result);
    }

    void check_kv(const oj_seq& seq, const std::vector<int32_t>& tokens) {
        uint64_t hash = 0;
        for (size_t at = 0; at < tokens.size(); ++at) {
            hash = hash_prefix(hash, tokens[at]);
            uint64_t& kv =
                kv_.at(static_cast<size_t>(seq.pages[at / kPageSize]) * kPageSize + at % kPageSize);
            if (static_cast<int32_t>(at) >= seq.pos) kv = hash;
            require(kv == hash, "a KV position holds another history");
        }
    }

    std::vector<float> logits(const std::vector<int32_t>& tokens, uint64_t salt) const {
        uint64_t hash = salt;
        for (int32_t token : tokens)
            hash = hash_prefix(hash, token);
        std::vector<float> row;
        for (int32_t id = 0; id < n_vocab_; ++id) {
            hash = hash_prefix(hash, id);
            row.push_back(static_cast<float>(hash >> 40) / 16777216.0f * 4.0f);
        }
        return row;
    }

    void choose(const oj_seq& seq, const Slot& slot, oj_seq_result* result) const {
        std::vector<int32_t> tokens = slot.history;
        std::vector<float> rows = logits(tokens, 0);
        for (int32_t draft : slot.drafts) {
            tokens.push_back(draft);
            const std::vector<float> row = logits(tokens, 0);
            rows.insert(rows.end(), row.begin(), row.end());
        }
        SampledRows sampled = {};
        sampled.logits = rows.data();
        sampled.stride = n_vocab_;
        sampled.n_rows = seq.n_sampled;
        sampled.n_vocab = n_vocab_;
        sampled.position = seq.pos + seq.n_certain;
        sampled.drafts = slot.drafts.data();
        sampled.sampling = seq.sampling;
        sampled.penalties = {seq.penalty_ids, seq.penalty_counts, seq.n_penalty, nullptr, 0};
        sampled.masks = seq.masks;
        if (seq.draft_source == OJ_DRAFT_MTP && !is_coupled(*seq.sampling)) sampled.q = slot.q;
        std::vector<float> scores(static_cast<size_t>(n_vocab_));
        std::vector<int32_t> ids(scores.size());
        std::vector<uint64_t> bins(kSelectBins);
        verify(sampled, {scores.data(), ids.data(), bins.data()}, result);
    }

    // A draft head that mostly agrees with the model.
    void propose(const oj_seq& seq, Slot& slot, oj_seq_result* result) const {
        std::vector<int32_t> tokens = slot.history;
        tokens.insert(tokens.end(), result->tokens, result->tokens + result->n_tokens);
        const size_t n_history = slot.history.size();
        std::vector<int32_t> ids(static_cast<size_t>(n_vocab_));
        std::vector<uint64_t> bins(kSelectBins);
        slot.scores.assign(OJ_MAX_DRAFTS, std::vector<float>(static_cast<size_t>(n_vocab_)));
        for (int32_t depth = 0; depth < seq.n_draft; ++depth) {
            std::vector<float> row = logits(tokens, 0);
            const std::vector<float> noise = logits(tokens, 7);
            for (size_t id = 0; id < row.size(); ++id)
                row[id] += 0.3f * noise[id];
            const Penalties penalties{seq.penalty_ids, seq.penalty_counts, seq.n_penalty,
                                      tokens.data() + n_history,
                                      static_cast<int32_t>(tokens.size() - n_history)};
            const int32_t draft = draft_token(
                row.data(), n_vocab_, *seq.sampling, penalties, static_cast<int32_t>(tokens.size()),
                {slot.scores[static_cast<size_t>(depth)].data(), ids.data(), bins.data()},
                &slot.q[depth]);
            result->drafts[result->n_drafts++] = draft;
            tokens.push_back(draft);
        }
        slot.proposed.assign(result->drafts, result->drafts + result->n_drafts);
    }

    const int32_t n_vocab_;
    const oj_backend_options options_;
    std::vector<Slot> slots_;
    std::vector<std::vector<int32_t>> snapshots_;
    std::vector<uint64_t> kv_;
    int64_t n_rows_ = 0;
};

// An engine on it that evicts, preempts and drafts.
inline oj_engine_options small_engine(int32_t n_slots, int32_t n_pages, int32_t n_snapshots) {
    oj_engine_options o = {};
    o.backend.kind = OJ_BACKEND_SCRIPTED;
    o.backend.n_slots = n_slots;
    o.backend.n_pages = n_pages;
    o.backend.n_snapshots = n_snapshots;
    o.backend.max_rows = n_slots + 16;
    o.backend.mtp = 1;
    o.context = std::min(n_pages * kPageSize, 4096);
    o.max_queue = 64;
    o.max_queue_client = 64;
    o.draft = 4;
    o.step_target = 2.5f;
    o.min_prompt_rows = 8;
    o.mask_timeout_ms = 20000;
    return o;
}

}  // namespace oj::test
