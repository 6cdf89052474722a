// Renders chats as llama-server's /apply-template does: JSON in, JSON out. See llama_prompts.py.

#include <exception>
#include <iostream>
#include <iterator>
#include <string>

#include "chat.h"
#include "json.h"

static std::string rendered(const common_json & chat) {
    auto templates = common_chat_templates_init(
        nullptr, chat.at("template").get<std::string>(), "", "<|im_end|>");
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(chat.at("messages"));
    inputs.tools = common_chat_tools_parse_oaicompat(chat.at("tools"));
    inputs.enable_thinking = chat.value("enable_thinking", true);
    if (chat.at("continues").get<bool>()) {
        inputs.add_generation_prompt = false;
        inputs.continue_final_message = COMMON_CHAT_CONTINUATION_AUTO;
    }
    for (const auto & [name, value] : chat.at("variables").items())
        inputs.chat_template_kwargs[name] = value.dump();
    return common_chat_templates_apply(templates.get(), inputs).prompt;
}

int main() {
    std::istreambuf_iterator<char> input(std::cin), end;
    common_json chats = common_json::parse(std::string(input, end));
    common_json out = common_json::array();
    for (const common_json & chat : chats) {
        common_json found = common_json::object();
        try {
            found["prompt"] = rendered(chat);
        } catch (const std::exception & error) {
            found["error"] = std::string(error.what());
        }
        out.push_back(found);
    }
    std::cout << out.dump() << std::endl;
}
