// A folder of state files, for one process at a time and bounded in size. Files that the engine
// names itself ("conversation-*.openjet") make room for new ones, the least recently used first;
// files that somebody else named are never removed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/state_file.h"

namespace oj {

class StateDirectory {
public:
    // Makes the folder if needed and locks it; throws oj::Error if it cannot be had.
    StateDirectory(const std::string& path, uint64_t max_bytes, const StateFormat& format);
    ~StateDirectory();
    StateDirectory(const StateDirectory&) = delete;
    StateDirectory& operator=(const StateDirectory&) = delete;

    const StateFormat& format() const { return format_; }
    uint64_t max_bytes() const { return max_bytes_; }

    // Names of the engine's own files, the least recently used first.
    std::vector<std::string> own_files() const;
    static std::string own_name(uint64_t id);
    // Throws OJ_ERR_INVALID for what cannot be the name of somebody else's file in this folder: own
    // names, paths, links.
    void check_foreign_name(const std::string& name) const;

    // Nanoseconds since the epoch, later at every call and than any of its files was used: where
    // the system's clock is set back, the order of use stays what it was. Any thread.
    int64_t now_ns();

    // What StateFile's functions are for a path. write() returns the files that made room, none of
    // which was used after `used_ns`; what is written was used then. Any thread.
    std::vector<std::string> write(const std::string& name, const SavedConversation& conversation,
                                   int64_t used_ns);
    StateFile open(const std::string& name) const { return StateFile(path_of(name), format_); }
    void remove(const std::string& name) const;
    void touch(const std::string& name, int64_t used_ns) const;

private:
    std::string path_of(const std::string& name) const { return path_ + "/" + name; }
    std::vector<std::string> make_room(const std::string& name, uint64_t bytes,
                                       int64_t used_ns) const;

    const std::string path_;
    const uint64_t max_bytes_;
    const StateFormat format_;
    int lock_ = -1;
    std::mutex writing_;
    std::atomic<int64_t> last_ns_{0};
};

}  // namespace oj
