-- Every rule of one request in one step, by the server's own clock.
--
-- KEYS[1] is the hold's mark: there once it was settled or released, so that neither is done
-- twice, and a reserve that comes late takes nothing. Then two keys for each rule: its counter (a
-- hash), and its holds (a sorted set by their end, of members `id|amount|period`).
-- ARGV: what to do (r reserve, s settle, x release, g grow, q only tell), the hold's id, milliseconds it lives,
-- then eleven words for each rule, see `rule`.
-- Amounts are whole and below 2^53. A bucket's debt has fractions, being refilled by the
-- millisecond.

local op, id, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local second = tonumber(time[1])
local now = second * 1000 + math.floor(tonumber(time[2]) / 1000)
local WORDS, PARTS, SLACK = 11, 60, 1e-6

if redis.call('EXISTS', KEYS[1]) == 1 then
    return {op == 'r' and 'late' or 'again'}
end
if op == 's' or op == 'x' then
    redis.call('SET', KEYS[1], '1', 'PX', ttl)
end

local function rule(i)
    local o = 3 + (i - 1) * WORDS
    local r = {
        state = KEYS[2 * i], holds = KEYS[2 * i + 1],
        kind = ARGV[o + 1],             -- b bucket, c concurrent, w window, m budget
        rate = tonumber(ARGV[o + 2]),   -- what flows into a bucket in `ms`
        cap = tonumber(ARGV[o + 3]),
        ms = tonumber(ARGV[o + 4]),     -- a bucket's period, a window's length
        bounds = ARGV[o + 5],           -- starts of a budget's last, this and next period, its end
        base = tonumber(ARGV[o + 6]),   -- what a budget has used, as it was last said here
        epoch = ARGV[o + 7],            -- and by which of its counters; 0: by the ledger
        n = tonumber(ARGV[o + 8]),      -- to take, to add, or really used
        held = tonumber(ARGV[o + 9]),   -- what the hold has
        period = ARGV[o + 10],          -- the start of the period the hold is of
        alert = tonumber(ARGV[o + 11]), -- a budget's threshold, or nothing
    }
    return r
end

local loaders = {}
function loaders.b(r)
    local s = redis.call('HMGET', r.state, 'd', 't')
    local passed = math.max(0, now - tonumber(s[2] or now))
    r.debt = math.max(0, tonumber(s[1] or 0) - passed * r.rate / r.ms)
end
function loaders.c(r) end
function loaders.w(r)
    r.part = math.floor(now / (r.ms / PARTS))
    r.used, r.open, r.parts = 0, 0, {}
    local s = redis.call('HGETALL', r.state)
    for j = 1, #s, 2 do
        local part, amount = tonumber(s[j]), tonumber(s[j + 1])
        if s[j] == 'h' then
            r.open = amount
        elseif part < r.part - PARTS then
            redis.call('HDEL', r.state, s[j])
        else
            r.used = r.used + amount
            r.parts[#r.parts + 1] = {part, amount}
        end
    end
    table.sort(r.parts, function(a, b) return a[1] < b[1] end)
end
function loaders.m(r)
    local s = redis.call('HMGET', r.state, 'p', 'u', 'h', 'a', 'e', 'b')
    local this, mine = 'ever', true
    if r.bounds ~= '' then
        local b = {}
        for word in string.gmatch(r.bounds, '[^,]+') do b[#b + 1] = tonumber(word) end
        local at = second < b[2] and 1 or second < b[3] and 2 or 3
        this, r.ends, mine = b[at], b[at + 1], at == 2
    end
    local kept = s[1] and (this == 'ever' or tonumber(s[1]) >= this)
    r.this = kept and s[1] or tostring(this)
    r.used = kept and tonumber(s[2]) or (not s[1] and mine and r.base or 0)
    r.open = kept and tonumber(s[3]) or 0
    r.told = kept and s[4] or '0'
    -- A counter that is not there was lost, with what all nodes had used: the first one that comes
    -- says what it knows, and who knows more of what was before adds the rest.
    r.born = kept and s[5] or tostring(now)
    r.from = kept and tonumber(s[6] or 0) or (not s[1] and r.used or 0)
    if kept and mine and r.epoch ~= '0' and r.epoch ~= r.born and r.base > r.from then
        r.used, r.from = r.used + r.base - r.from, r.base
    end
    if not s[1] and r.alert and r.used >= r.alert then r.told = '1' end
end

local function give(r, amount, period)
    if r.kind == 'b' then r.debt = math.max(0, r.debt - amount)
    elseif r.kind == 'w' then r.open = math.max(0, r.open - amount)
    elseif r.kind == 'm' and period == r.this then r.open = math.max(0, r.open - amount) end
end

local function load(r)
    loaders[r.kind](r)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', r.holds, '-inf', now, 'LIMIT', 0, 100)) do
        local amount, period = string.match(member, '^[^|]*|([^|]*)|(.*)$')
        redis.call('ZREM', r.holds, member)
        give(r, tonumber(amount), period)
    end
    if r.kind == 'c' then r.open = redis.call('ZCARD', r.holds) end
end

local function take(r, amount)
    if r.kind == 'b' then r.debt = r.debt + amount
    elseif r.kind ~= 'c' then r.open = r.open + amount end
    local member = id .. '|' .. string.format('%.0f', r.held + amount) .. '|' .. (r.this or '0')
    redis.call('ZADD', r.holds, now + ttl, member)
    redis.call('PEXPIRE', r.holds, ttl + 60000)
end

-- Takes the hold away; what it had if it was still there.
local function drop(r)
    local member = id .. '|' .. string.format('%.0f', r.held) .. '|' .. r.period
    return redis.call('ZREM', r.holds, member) == 1
end

local function save(r)
    local whole = function(n) return string.format('%.0f', n) end
    if r.kind == 'b' then
        redis.call('HSET', r.state, 'd', string.format('%.17g', r.debt), 't', whole(now))
        redis.call('PEXPIRE', r.state, whole(math.ceil(r.debt * r.ms / r.rate) + r.ms + ttl))
    elseif r.kind == 'w' then
        redis.call('HSET', r.state, 'h', whole(r.open))
        redis.call('PEXPIRE', r.state, whole(2 * r.ms + ttl))
    elseif r.kind == 'm' then
        redis.call('HSET', r.state, 'p', r.this, 'u', whole(r.used), 'h', whole(r.open), 'a', r.told,
            'e', r.born, 'b', whole(r.from))
        if r.ends then
            redis.call('PEXPIRE', r.state, whole((r.ends - second + 86400) * 1000 + ttl))
        else
            redis.call('PERSIST', r.state)
        end
    end
end

-- When `amount` of a window's use will have left it.
local function leaves(r, amount)
    local left = amount
    for _, part in ipairs(r.parts) do
        left = left - part[2]
        if left <= 0 then return math.ceil((part[1] + PARTS + 1) * (r.ms / PARTS)) - now end
    end
    return amount > 0 and 1000 or 0
end

-- Why it does not fit: how grave, and the words of the reply.
local function refuses(r)
    if r.kind == 'b' then
        if r.n > r.cap then return 4, {'never'} end
        local over = r.debt + r.n - r.cap
        if over > SLACK then
            local wait = math.ceil(over * r.ms / r.rate)
            return 1 + wait / 1e12, {'wait', wait}
        end
    elseif r.kind == 'c' then
        if r.open + r.n > r.cap then return 1 + 1e-9, {'wait', 1000} end
    elseif r.kind == 'w' then
        if r.n > r.cap then return 4, {'never'} end
        local over = r.used + r.open + r.n - r.cap
        if over > 0 then
            local wait = leaves(r, over)
            return 1 + wait / 1e12, {'wait', wait}
        end
    elseif r.n > r.cap and r.cap > 0 then
        return 4, {'never'}
    elseif r.n > 0 and r.used + r.open + r.n > r.cap then
        return 3 + (r.ends or 1e11) / 1e12, {'spent', r.used, r.open, r.ends or 0}
    end
    return 0
end

-- Used, held, milliseconds to its reset (-1: never), and since when a budget is counted.
local function standing(r)
    if r.kind == 'b' then return math.ceil(r.debt - SLACK), 0, math.ceil(r.debt * r.ms / r.rate) end
    if r.kind == 'c' then return 0, r.open, 0 end
    if r.kind == 'w' then return r.used, r.open, leaves(r, r.used) end
    return r.used, r.open, r.ends and (r.ends * 1000 - now) or -1
end

local rules, worst, reply = {}, 0, nil
local function tell(r)
    local used, held, reset = standing(r)
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = used, held, reset, tonumber(r.born or 0)
end
for i = 1, (#KEYS - 1) / 2 do
    local r = rule(i)
    load(r)
    rules[i] = r
    if op == 'r' then
        local grave, words = refuses(r)
        if grave > worst then
            worst = grave
            reply = {'no', i, unpack(words)}
        end
    end
end
if reply then return reply end

reply = {'ok'}
for i, r in ipairs(rules) do
    if op == 'r' then
        take(r, r.n)
        if r.kind == 'c' then r.open = r.open + 1 end
        tell(r)
    elseif op == 'q' then
        tell(r)
    elseif op == 'g' then
        if r.n > 0 and r.kind ~= 'c' then
            -- A hold whose time was over has been given back: then this is the whole of it.
            if not drop(r) then r.held = 0 end
            take(r, r.n)
        end
    else
        local there = drop(r)
        if r.kind == 'b' then
            r.debt = math.max(0, r.debt + r.n - (there and r.held or 0))
        else
            if there then give(r, r.held, r.period) end
            if r.kind == 'w' and r.n > 0 then
                redis.call('HINCRBY', r.state, string.format('%.0f', r.part), string.format('%.0f', r.n))
            elseif r.kind == 'm' and r.period == r.this then
                r.used = r.used + r.n
                local due = 0
                if r.alert and r.used >= r.alert and r.told ~= '1' then r.told, due = '1', 1 end
                local n = #reply
                reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = i, r.used, tonumber(r.born), due
            end
        end
    end
    save(r)
end
return reply
