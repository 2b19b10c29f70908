// What tools such as `top -H` and profilers call a thread.
#pragma once

#include <pthread.h>

namespace octet {

// At most 15 characters; a longer name leaves the thread without one.
inline void name_this_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace octet
