#include "engine/queue.h"

#include <algorithm>

#include "model/error.h"

namespace oj {

RequestQueue::RequestQueue(int32_t max_all, int32_t max_client)
    : max_all_(max_all), max_client_(max_client) {}

std::list<RequestQueue::Client>::iterator RequestQueue::find_client(const std::string& name) {
    return std::find_if(round_.begin(), round_.end(),
                        [&](const Client& client) { return client.name == name; });
}

void RequestQueue::push(std::unique_ptr<Conversation> request) {
    if (size_ >= max_all_) {
        throw Error(OJ_ERR_BUSY, "busy: " + std::to_string(size_) +
                                     " requests wait already, the most allowed; try again later");
    }
    auto client = find_client(request->client);
    if (client == round_.end()) {
        client = round_.insert(round_.end(), {request->client, {}});
    } else if (static_cast<int32_t>(client->requests.size()) >= max_client_) {
        throw Error(OJ_ERR_BUSY, "busy: " + std::to_string(max_client_) + " requests of client \"" +
                                     request->client +
                                     "\" wait already, the most allowed; try again later");
    }
    client->requests.push_back(std::move(request));
    ++size_;
}

void RequestQueue::push_front(std::unique_ptr<Conversation>&& request) {
    auto client = find_client(request->client);
    if (client == round_.end()) {
        client = round_.insert(round_.begin(), {request->client, {}});
    } else {
        round_.splice(round_.begin(), round_, client);
    }
    client->requests.push_front(std::move(request));
    ++size_;
}

std::vector<Conversation*> RequestQueue::heads() const {
    std::vector<Conversation*> heads;
    for (const Client& client : round_)
        heads.push_back(client.requests.front().get());
    return heads;
}

Conversation* RequestQueue::find(uint64_t id) const {
    for (const Client& client : round_) {
        for (const auto& request : client.requests) {
            if (request->id == id) return request.get();
        }
    }
    return nullptr;
}

std::unique_ptr<Conversation> RequestQueue::pop(const Conversation* head) {
    auto client = find_client(head->client);
    std::unique_ptr<Conversation> request = std::move(client->requests.front());
    client->requests.pop_front();
    --size_;
    if (client->requests.empty()) {
        round_.erase(client);
    } else {
        round_.splice(round_.end(), round_, client);
    }
    return request;
}

}  // namespace oj
