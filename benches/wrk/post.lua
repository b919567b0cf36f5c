-- wrk -s post.lua URL -- BODY_FILE [HEADER VALUE]... [@keys FILE]
-- Posts a file, with the keys of the other one in turn, and counts every reply that is no 200, or a stream without its end.
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

-- Every request is made when it is sent, with the next key of the file.
local function in_turn(path)
  local keys, at = {}, 0
  for key in io.lines(path) do
    table.insert(keys, "Bearer " .. key)
  end
  function request()
    at = at % #keys + 1
    wrk.headers["Authorization"] = keys[at]
    return wrk.format()
  end
end

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method, wrk.body = "POST", file:read("*a")
  file:close()
  wrk.headers["Content-Type"] = "application/json"
  for i = 2, #arguments - 1, 2 do
    if arguments[i] == "@keys" then
      in_turn(arguments[i + 1])
    else
      wrk.headers[arguments[i]] = arguments[i + 1]
    end
  end
  stream = wrk.body:find('"stream":true', 1, true) ~= nil
  bad, seen = 0, 0
end

local function ended(body)
  return body:find("data: [DONE]", -64, true) or body:find('"type":"message_stop"', -64, true)
end

function response(status, _, body)
  seen = seen + 1
  if status ~= 200 or (stream and not ended(body)) then
    bad = bad + 1
    if bad == 1 then
      io.stderr:write(status, " ", body:sub(1, 300), "\n")
    end
  end
end

function done(summary, latency)
  local all_bad, all_seen = 0, 0
  for _, thread in ipairs(threads) do
    all_bad, all_seen = all_bad + thread:get("bad"), all_seen + thread:get("seen")
  end
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"errors":%d,"wall_s":%.3f,"p50_us":%d,"p99_us":%d}\n',
    all_seen, all_bad + e.connect + e.read + e.write + e.timeout, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99)))
end
