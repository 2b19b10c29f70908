// Boost.Asio as octet uses it. Its own headers need <utility> before them under GCC 12 and C++20.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace octet {

namespace asio = boost::asio;
using Tcp = boost::asio::ip::tcp;
using NetworkError = boost::system::error_code;

}  // namespace octet
