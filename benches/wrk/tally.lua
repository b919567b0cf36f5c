-- wrk -s tally.lua URL -- BODY_FILE [HEADER VALUE]...
-- Posts a file; counts replies by status and error code, and streams without their end.
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method, wrk.body = "POST", file:read("*a")
  file:close()
  wrk.headers["Content-Type"] = "application/json"
  for i = 2, #arguments - 1, 2 do
    wrk.headers[arguments[i]] = arguments[i + 1]
  end
  stream = wrk.body:find('"stream":true', 1, true) ~= nil
  seen = {}
end

function response(status, _, body)
  local what = tostring(status)
  if status ~= 200 then
    what = what .. " " .. (body:match('"code":"([%w_]+)"') or "without a code")
  elseif stream and not body:find("data: [DONE]", -64, true) then
    what = "200 " .. (body:match('"code":"([%w_]+)"') or "without its end")
  end
  seen[what] = (seen[what] or 0) + 1
end

function done(summary, latency)
  local total = {}
  for _, thread in ipairs(threads) do
    for what, n in pairs(thread:get("seen")) do
      total[what] = (total[what] or 0) + n
    end
  end
  local parts = {}
  for what, n in pairs(total) do
    table.insert(parts, string.format('"%s":%d', what, n))
  end
  local e = summary.errors
  io.write(string.format(
    '{"seen":{%s},"socket_errors":%d,"timeouts":%d,"wall_s":%.3f,"p50_us":%d,"p99_us":%d}\n',
    table.concat(parts, ","), e.connect + e.read + e.write, e.timeout, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99)))
end
