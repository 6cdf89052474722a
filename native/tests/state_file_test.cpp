// Files of the state directory: what may happen to them, and which make room.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <ctime>

#include "expect.h"
#include "state_files.h"

namespace oj::test {
namespace {

// Every flipped bit and every shorter or longer file is refused: with an error, without reading
// past anything.
void check_damaged_files() {
    const Folder folder;
    const std::string path = folder.path + "/file";
    const SavedConversation saved = conversation(70, 1);
    write_state_file(path, kFormat, saved);
    const std::string good = read_file(path);
    expect(good.size() == state_file_bytes(kFormat, saved), "the size is known before");
    expect(same(StateFile(path, kFormat).read_all(), saved), "what was written is read");
    const auto refused = [&](const std::string& bytes) {
        write_file(path, bytes);
        try {
            StateFile(path, kFormat).read_all();
            return false;
        } catch (const Error& error) {
            return std::string(error.what()).find(path) != std::string::npos;
        }
    };
    for (size_t i = 0; i < good.size(); ++i) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
        expect(refused(bad), "byte " + std::to_string(i) + " flipped");
        expect(refused(good.substr(0, i)), "cut to " + std::to_string(i) + " bytes");
    }
    expect(refused(good + "x"), "a byte too many");
    write_file(path, good);
    expect_error(OJ_ERR_FORMAT, "another model", [&] { StateFile(path, {8, 24, 10}); });
    expect_error(OJ_ERR_FORMAT, "another model", [&] { StateFile(path, {7, 25, 10}); });
    std::string future = good;
    future[8] = 2;
    write_file(path, future);
    expect_error(OJ_ERR_FORMAT, "format version 2; this build reads 1",
                 [&] { StateFile(path, kFormat); });
    expect_error(OJ_ERR_IO, "No such file", [&] { StateFile(path + "x", kFormat); });
    expect_error(OJ_ERR_FORMAT, "is not a file", [&] { StateFile(folder.path, kFormat); });
    expect(symlink(path.c_str(), (folder.path + "/link").c_str()) == 0, "a link");
    expect_error(OJ_ERR_IO, "symbolic links", [&] { StateFile(folder.path + "/link", kFormat); });
}

void check_directory() {
    const Folder folder;
    const SavedConversation saved = conversation(70, 1);
    const uint64_t bytes = state_file_bytes(kFormat, saved);
    write_file(folder.path + "/old.openjet-tmp", "left behind");
    StateDirectory directory(folder.path, 3 * bytes + 10, kFormat);
    expect(files_of(folder.path).empty(), "half-written files are removed");
    expect_error(OJ_ERR_INVALID, "in use by another engine",
                 [&] { StateDirectory(folder.path, 1, kFormat); });
    expect_error(OJ_ERR_INVALID, "cannot be made",
                 [&] { StateDirectory(folder.path + "/a/b", 1, kFormat); });
    expect(symlink("/etc/passwd", (folder.path + "/link").c_str()) == 0, "a link");
    for (const char* name : {"", ".", "..", "../x", "a/b", "/x", "a\\b", ".x", "a\nb", "link",
                             "conversation-1.openjet", "x.openjet-tmp"})
        expect_error(OJ_ERR_INVALID, "filename", [&] { directory.check_foreign_name(name); });
    expect_error(OJ_ERR_INVALID, "200 bytes",
                 [&] { directory.check_foreign_name(std::string(201, 'x')); });
    directory.check_foreign_name("my chat.bin");
    unlink((folder.path + "/link").c_str());

    // The least recently used of its own files make room; others' never do.
    directory.write("mine.bin", saved, directory.now_ns());
    std::vector<std::string> names;
    for (uint64_t id : {1, 2, 3}) {
        names.push_back(StateDirectory::own_name(id));
        const std::vector<std::string> removed =
            directory.write(names.back(), saved, directory.now_ns());
        expect(removed.empty() || (id == 3 && removed == std::vector<std::string>{names[0]}),
               "the oldest makes room");
    }
    directory.touch(names[1], directory.now_ns());
    expect(directory.own_files() == std::vector<std::string>({names[2], names[1]}), "by use");
    expect_error(OJ_ERR_MEMORY, "raise state_bytes",
                 [&] { directory.write("large", conversation(1000, 1), directory.now_ns()); });
    expect(files_of(folder.path).size() == 3, "nothing is removed in vain");
}

// Files that were used when the system's clock was a year ahead, or at no possible time, make room
// as others do, in the order of use.
void check_clock() {
    const Folder folder;
    const SavedConversation saved = conversation(70, 1);
    const std::string names[] = {StateDirectory::own_name(1), StateDirectory::own_name(2),
                                 StateDirectory::own_name(3)};
    const auto open = [&](uint64_t n_files) {
        return StateDirectory(folder.path, n_files * state_file_bytes(kFormat, saved), kFormat);
    };
    const auto set_time = [&](const std::string& name, time_t at) {
        const timespec times[] = {{at, 0}, {at, 0}};
        utimensat(AT_FDCWD, (folder.path + "/" + name).c_str(), times, 0);
    };
    {
        StateDirectory directory = open(3);
        for (const std::string& name : {names[1], names[0]})
            directory.write(name, saved, directory.now_ns());
    }
    const time_t ahead = time(nullptr) + 365 * 86400;
    set_time(names[0], ahead);
    set_time(names[1], ahead + 1);
    StateDirectory directory = open(2);
    expect(directory.own_files() == std::vector<std::string>({names[0], names[1]}), "by use");
    expect(directory.write(names[2], saved, directory.now_ns()) ==
               std::vector<std::string>({names[0]}),
           "the least recently used makes room");
    expect(directory.own_files() == std::vector<std::string>({names[1], names[2]}), "still by use");
    directory.touch(names[1], directory.now_ns());
    expect(directory.own_files() == std::vector<std::string>({names[2], names[1]}),
           "and by the next");
    const int64_t first = directory.now_ns();
    expect(first < directory.now_ns(), "every moment is later");
}

// A child that outlives its parent does not keep the folder.
void check_forked_child() {
    const Folder folder;
    int ready[2], until[2];
    expect(pipe(ready) == 0 && pipe(until) == 0, "pipes");
    const pid_t parent = fork();
    if (parent == 0) {
        const StateDirectory directory(folder.path, 1, kFormat);
        if (fork() > 0) _exit(0);
        char byte = 0;
        close(until[1]);
        const bool is_told = write(ready[1], &byte, 1) == 1 && read(until[0], &byte, 1) == 0;
        _exit(is_told ? 0 : 1);
    }
    char byte = 1;
    expect(read(ready[0], &byte, 1) == 1, "there is a child");
    expect(waitpid(parent, nullptr, 0) == parent, "whose parent has ended");
    try {
        StateDirectory(folder.path, 1, kFormat);
    } catch (const Error& error) {
        expect(false, error.what());
    }
    for (int end : {ready[0], ready[1], until[0], until[1]})
        close(end);
}

// A disk that is full while a file is written: no file, and no other one lost.
void check_full_disk() {
    const Folder folder;
    const std::string path = folder.path + "/file";
    write_state_file(path, kFormat, conversation(10, 1));
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{400, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    expect_error(OJ_ERR_MEMORY, "make room on its disk",
                 [&] { write_state_file(path, kFormat, conversation(200, 1)); });
    setrlimit(RLIMIT_FSIZE, &before);
    expect(same(StateFile(path, kFormat).read_all(), conversation(10, 1)), "the old file stays");
    expect(files_of(folder.path).size() == 1, "nothing half-written is left");
}

}  // namespace
}  // namespace oj::test

int main() {
    using namespace oj::test;
    check_damaged_files();
    check_directory();
    check_clock();
    check_forked_child();
    check_full_disk();
    return report();
}
