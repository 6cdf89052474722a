// The one exception type of the native code. It is caught at the C interface, which turns it into
// a status code (OJ_ERR_* of openjet.h) and a message for the user.
#pragma once

#include <stdexcept>
#include <string>

#include "openjet.h"

namespace oj {

class Error : public std::runtime_error {
public:
    // `message` names the input (file, key, tensor, option), what was found and what was expected.
    Error(int code, const std::string& message) : std::runtime_error(message), code_(code) {}

    int code() const { return code_; }

private:
    int code_;
};

}  // namespace oj
