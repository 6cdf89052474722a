// A conversation in a file: its tokens, the states stored at some of their lengths, and the KV
// pages below the longest. Whatever is wrong with a file is an oj::Error that names it.
//
//   Header | tokens int32[] | StateRecord[] | page checksums uint64[] | states | pages
//
// Little-endian, every part with a checksum, the size exact. Pages and states are the backend's
// bytes: a file is read by the same model, backend, options and version only (the fingerprint).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "model/error.h"

namespace oj {

using StateBytes = std::shared_ptr<const uint8_t[]>;

struct StateFormat {
    uint64_t fingerprint;
    size_t page_bytes;
    size_t state_bytes;
};

// Of everything that the bytes of pages and states depend on. Weights are sampled, not read whole.
StateFormat make_state_format(const Model& model, const oj_backend_options& options,
                              const oj_state_format& backend);

struct SavedState {
    int32_t length;  // tokens behind it
    bool shared;     // see StoredPrefix
    StateBytes bytes;
};

struct SavedConversation {
    std::vector<int32_t> tokens;
    std::vector<SavedState> states;  // ascending lengths, the last one tokens.size()
    std::vector<StateBytes> pages;   // of all tokens, the last one may be partial
};

// The size of such a file.
uint64_t state_file_bytes(const StateFormat& format, const SavedConversation& conversation);

// Replaces `path` at once or not at all; it is on the disk when this returns.
void write_state_file(const std::string& path, const StateFormat& format,
                      const SavedConversation& conversation);

class StateFile {
public:
    // Checks everything but the bytes of states and pages. Follows no link.
    StateFile(const std::string& path, const StateFormat& format);
    ~StateFile();
    StateFile(const StateFile&) = delete;
    StateFile& operator=(const StateFile&) = delete;

    // Without the bytes of states and pages.
    const SavedConversation& index() const { return index_; }

    StateBytes read_state(size_t i) const;
    StateBytes read_page(size_t i) const;
    SavedConversation read_all() const;

private:
    void read_index();
    void read(void* out, size_t n, uint64_t offset) const;
    StateBytes read_checked(size_t n, uint64_t offset, uint64_t checksum) const;
    [[noreturn]] void refuse(const std::string& what) const;

    const std::string path_;
    const StateFormat format_;
    int fd_;
    SavedConversation index_;
    std::vector<uint64_t> state_checksums_;
    std::vector<uint64_t> page_checksums_;
    uint64_t first_state_ = 0;  // offsets
    uint64_t first_page_ = 0;
};

}  // namespace oj
