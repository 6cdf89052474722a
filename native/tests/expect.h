// What test programs expect, and how they end.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "model/error.h"

namespace oj::test {

inline int failures = 0;

inline void expect(bool holds, const std::string& what) {
    if (holds) return;
    ++failures;
    std::printf("FAILED: %s\n", what.c_str());
}

// `action` throws oj::Error of this code, with `part` in its message.
inline void expect_error(int code, const std::string& part, const std::function<void()>& action) {
    try {
        action();
        expect(false, "no error with \"" + part + "\"");
    } catch (const Error& error) {
        expect(error.code() == code && std::string(error.what()).find(part) != std::string::npos,
               "expected \"" + part + "\", got \"" + error.what() + "\"");
    }
}

// The exit status of a test program.
inline int report() {
    if (failures == 0) std::puts("ok");
    return failures == 0 ? 0 : 1;
}

}  // namespace oj::test
