// What the tests of kept conversations share: folders, files, and conversations of a few bytes.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "engine/pages.h"
#include "engine/state_directory.h"

namespace oj::test {

inline std::vector<std::string> files_of(const std::string& path) {
    std::vector<std::string> names;
    DIR* folder = opendir(path.c_str());
    while (const dirent* item = folder ? readdir(folder) : nullptr) {
        if (item->d_name[0] != '.') names.emplace_back(item->d_name);
    }
    if (folder) closedir(folder);
    return names;
}

class Folder {
public:
    Folder() {
        char name[] = "/tmp/openjet-store-XXXXXX";
        path = mkdtemp(name);
    }
    ~Folder() {
        for (const std::string& name : files_of(path))
            unlink((path + "/" + name).c_str());
        unlink((path + "/.openjet-lock").c_str());
        rmdir(path.c_str());
    }
    std::string path;
};

inline std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

inline constexpr StateFormat kFormat{7, 24, 10};

inline StateBytes filled(size_t n, int value) {
    std::shared_ptr<uint8_t[]> bytes(new uint8_t[n]);
    std::fill_n(bytes.get(), n, static_cast<uint8_t>(value));
    return bytes;
}

inline SavedConversation conversation(int32_t n_tokens, int salt) {
    SavedConversation saved;
    for (int32_t i = 0; i < n_tokens; ++i)
        saved.tokens.push_back(i % 5 + salt);
    saved.states = {{3, true, filled(10, salt)}, {n_tokens, false, filled(10, salt + 1)}};
    for (int32_t i = 0; i < pages_for(n_tokens); ++i)
        saved.pages.push_back(filled(24, salt + i));
    return saved;
}

inline bool same(const SavedConversation& a, const SavedConversation& b) {
    const auto equal = [](const StateBytes& x, const StateBytes& y, size_t n) {
        return std::equal(x.get(), x.get() + n, y.get());
    };
    bool all = a.tokens == b.tokens && a.states.size() == b.states.size() &&
               a.pages.size() == b.pages.size();
    for (size_t i = 0; all && i < a.states.size(); ++i) {
        all = a.states[i].length == b.states[i].length &&
              a.states[i].shared == b.states[i].shared &&
              equal(a.states[i].bytes, b.states[i].bytes, kFormat.state_bytes);
    }
    for (size_t i = 0; all && i < a.pages.size(); ++i)
        all = equal(a.pages[i], b.pages[i], kFormat.page_bytes);
    return all;
}

}  // namespace oj::test
