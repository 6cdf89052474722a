#include "engine/state_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <tuple>
#include <utility>

namespace oj {

namespace {

constexpr char kPrefix[] = "conversation-";
constexpr char kSuffix[] = ".openjet";
constexpr char kTemporary[] = ".openjet-tmp";
constexpr char kLock[] = ".openjet-lock";
constexpr size_t kMaxName = 200;
constexpr int64_t kSecond = 1'000'000'000;      // ns
constexpr int64_t kLastSecond = 9'000'000'000;  // after the epoch, that fits in ns

bool starts_with(const std::string& text, const char* start) {
    return text.compare(0, std::strlen(start), start) == 0;
}

bool ends_with(const std::string& text, const char* end) {
    const size_t n = std::strlen(end);
    return text.size() >= n && text.compare(text.size() - n, n, end) == 0;
}

bool is_own(const std::string& name) {
    return starts_with(name, kPrefix) && ends_with(name, kSuffix);
}

struct Entry {
    std::string name;
    uint64_t bytes;
    int64_t used_ns;
};

// The files of a folder, the least recently used first.
std::vector<Entry> list_files(const std::string& path) {
    std::vector<Entry> files;
    DIR* folder = opendir(path.c_str());
    if (!folder) return files;
    while (const dirent* item = readdir(folder)) {
        struct stat info = {};
        const std::string file = path + "/" + item->d_name;
        if (lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
        const int64_t second = std::clamp<int64_t>(info.st_mtim.tv_sec, 0, kLastSecond);
        files.push_back({item->d_name, static_cast<uint64_t>(info.st_size),
                         second * kSecond + info.st_mtim.tv_nsec});
    }
    closedir(folder);
    std::sort(files.begin(), files.end(), [](const Entry& a, const Entry& b) {
        return std::tie(a.used_ns, a.name) < std::tie(b.used_ns, b.name);
    });
    return files;
}

// The locks of this process. A forked child shares the open files, and with them the locks, which
// are not its to keep: it closes them.
struct Locks {
    std::mutex mutex;
    std::vector<int*> files;
};

Locks& locks() {
    static Locks all;
    static const int registered =
        pthread_atfork([] { all.mutex.lock(); }, [] { all.mutex.unlock(); },
                       [] {
                           for (int* file : all.files)
                               close(std::exchange(*file, -1));
                           all.files.clear();
                           all.mutex.unlock();
                       });
    static_cast<void>(registered);
    return all;
}

[[noreturn]] void refuse_directory(const std::string& path, const std::string& what) {
    throw Error(OJ_ERR_INVALID, "state_dir " + path + " " + what);
}

}  // namespace

StateDirectory::StateDirectory(const std::string& path, uint64_t max_bytes,
                               const StateFormat& format)
    : path_(path), max_bytes_(max_bytes), format_(format) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        refuse_directory(path, std::string("cannot be made: ") + std::strerror(errno));
    }
    Locks& all = locks();
    std::lock_guard<std::mutex> guard(all.mutex);
    lock_ = ::open(path_of(kLock).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock_ < 0) {
        refuse_directory(path, std::string("cannot be used: ") + std::strerror(errno));
    }
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
        close(lock_);
        refuse_directory(path, "is in use by another engine; give each its own");
    }
    for (const Entry& file : list_files(path)) {  // of a process that was killed while it wrote
        if (ends_with(file.name, kTemporary)) remove(file.name);
        if (is_own(file.name)) last_ns_ = file.used_ns;  // the last one's in the end
    }
    all.files.push_back(&lock_);
}

StateDirectory::~StateDirectory() {
    Locks& all = locks();
    std::lock_guard<std::mutex> guard(all.mutex);
    if (lock_ < 0) return;  // in a child
    all.files.erase(std::find(all.files.begin(), all.files.end(), &lock_));
    flock(lock_, LOCK_UN);  // for good, even while a child is only about to close it
    close(lock_);
}

std::vector<std::string> StateDirectory::own_files() const {
    std::vector<std::string> names;
    for (const Entry& file : list_files(path_)) {
        if (is_own(file.name)) names.push_back(file.name);
    }
    return names;
}

std::string StateDirectory::own_name(uint64_t id) {
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4)
        digits += "0123456789abcdef"[id >> shift & 15];
    return kPrefix + digits + kSuffix;
}

void StateDirectory::check_foreign_name(const std::string& name) const {
    const auto refuse = [&](const std::string& rule) {
        throw Error(OJ_ERR_INVALID, "filename: " + rule);
    };
    const auto is_bad = [](char c) {
        return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 32 || c == 127;
    };
    if (name.empty()) refuse("it is empty");
    if (name.size() > kMaxName) refuse("more than " + std::to_string(kMaxName) + " bytes");
    if (std::any_of(name.begin(), name.end(), is_bad)) {
        refuse("only the name of a file in the state directory, without folders");
    }
    if (name[0] == '.') refuse("it begins with a dot");
    if (is_own(name) || ends_with(name, kTemporary)) refuse("such names are the engine's own");
    struct stat info = {};
    if (lstat(path_of(name).c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
        refuse("it exists and is not a file");
    }
}

std::vector<std::string> StateDirectory::write(const std::string& name,
                                               const SavedConversation& conversation,
                                               int64_t used_ns) {
    std::lock_guard<std::mutex> lock(writing_);
    std::vector<std::string> removed =
        make_room(name, state_file_bytes(format_, conversation), used_ns);
    write_state_file(path_of(name), format_, conversation);
    touch(name, used_ns);
    return removed;
}

int64_t StateDirectory::now_ns() {
    const int64_t clock =
        std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
    int64_t last = last_ns_, now;
    do {
        now = std::max(clock, last + 1);
    } while (!last_ns_.compare_exchange_weak(last, now));
    return now;
}

// The file that is replaced counts until it is.
std::vector<std::string> StateDirectory::make_room(const std::string& name, uint64_t bytes,
                                                   int64_t used_ns) const {
    const auto stays = [&](const Entry& file) {
        return !is_own(file.name) || file.name == name || file.used_ns > used_ns;
    };
    const std::vector<Entry> files = list_files(path_);
    uint64_t least = bytes, total = bytes;
    for (const Entry& file : files) {
        total += file.bytes;
        if (stays(file)) least += file.bytes;
    }
    if (least > max_bytes_) {
        throw Error(OJ_ERR_MEMORY, "no room for " + std::to_string(bytes) + " bytes in " + path_ +
                                       ", which may hold " + std::to_string(max_bytes_) +
                                       "; raise state_bytes or remove files");
    }
    std::vector<std::string> removed;
    for (const Entry& file : files) {
        if (total <= max_bytes_) break;
        if (stays(file)) continue;
        remove(file.name);
        removed.push_back(file.name);
        total -= file.bytes;
    }
    return removed;
}

void StateDirectory::remove(const std::string& name) const {
    unlink(path_of(name).c_str());
}

void StateDirectory::touch(const std::string& name, int64_t used_ns) const {
    const timespec used{used_ns / kSecond, used_ns % kSecond};
    const timespec times[] = {used, used};
    utimensat(AT_FDCWD, path_of(name).c_str(), times, AT_SYMLINK_NOFOLLOW);
}

}  // namespace oj
