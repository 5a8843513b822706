"""The scripts of the Redis store (Lua). Each has two arguments before its own: prefix, and lease in ms."""

_COMMON = """
local prefix, lease = ARGV[1], tonumber(ARGV[2])
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function lasts(session)
  local entry = redis.call('HGET', prefix .. 'nodes', session)
  return entry and tonumber(string.match(entry, ' (%d+)$')) > now()
end
"""

OPEN = (
    _COMMON
    + """
local used, at = {}, now()
local all = redis.call('HGETALL', prefix .. 'nodes')
for i = 1, #all, 2 do
  local number, till = string.match(all[i + 1], '^(%d+) (%d+)$')
  if tonumber(till) > at then used[tonumber(number)] = true end
end
local node = 0
while used[node] do node = node + 1 end
if node > 255 then return {0, -1} end
local session = redis.call('INCR', prefix .. 'sessions')
redis.call('HSET', prefix .. 'nodes', session, node .. ' ' .. string.format('%d', at + lease))
local found = {session, node}
for _, word in ipairs(redis.call('HGETALL', prefix .. 'marks:' .. node)) do found[#found + 1] = word end
return found
"""
)
"""Begin a session: its number, its node (-1 = all are in use), then the node's marks."""

RENEW = (
    _COMMON
    + """
if not lasts(ARGV[3]) then return 0 end
redis.call('HSET', prefix .. 'nodes', ARGV[3], ARGV[4] .. ' ' .. string.format('%d', now() + lease))
return 1
"""
)
"""Session, node: 1, or 0 when the lease has run out."""

TAKE = (
    _COMMON
    + """
local session, left, found = ARGV[3], tonumber(ARGV[4]), {}
if not lasts(session) then return found end
for i = 5, #ARGV do
  local fields = redis.call('HGETALL', prefix .. 'message:' .. ARGV[i])
  if #fields > 0 then found[#found + 1] = {ARGV[i], fields} end
end
for _, other in ipairs(redis.call('HKEYS', prefix .. 'nodes')) do
  if other ~= session and left > 0 and not lasts(other) then
    local theirs = prefix .. 'session:' .. other
    local some = redis.call('ZRANGE', theirs, 0, left - 1, 'WITHSCORES')
    for i = 1, #some, 2 do
      local key = prefix .. 'message:' .. some[i]
      redis.call('ZREM', theirs, some[i])
      redis.call('ZADD', prefix .. 'session:' .. session, some[i + 1], some[i])
      redis.call('HSET', key, 'owner', session)
      found[#found + 1] = {some[i], redis.call('HGETALL', key)}
      left = left - 1
    end
    if redis.call('EXISTS', theirs) == 0 then redis.call('HDEL', prefix .. 'nodes', other) end
  end
end
return found
"""
)
"""Session, most, the session's messages that are to be given again: those, and messages that become the
session's own, each with its hash."""

WRITE = (
    _COMMON
    + """
local linger, short, session, node = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local live, at, lost = lasts(session), 7, {}
local function word()
  at = at + 1
  return ARGV[at - 1]
end
for _ = 1, tonumber(word()) do
  local name, number = word(), word()
  if live then redis.call('HSET', prefix .. 'marks:' .. node, name, number) end
end
while at <= #ARGV do
  local spid, new, replaced, due = word(), word() == '1', word() == '1', word()
  local key, content = prefix .. 'message:' .. spid, prefix .. 'content:' .. spid
  local puts, drops = {}, {}
  for i = 1, 2 * tonumber(word()) do puts[i] = word() end
  for i = 1, tonumber(word()) do drops[i] = word() end
  local owner = redis.call('HGET', key, 'owner')
  local own = owner == session and (live or not replaced)
  if not owner then
    -- New; or it has ended by a write whose answer was lost: while the lease lasts nobody else has had it.
    own = live and (new or due == '')
  end
  if not own then
    lost[#lost + 1] = spid
  elseif due == '' then
    redis.call('DEL', key)
    redis.call('ZREM', prefix .. 'session:' .. session, spid)
    if redis.call('LLEN', content) > short then
      redis.call('EXPIRE', content, linger)
    else
      redis.call('DEL', content)
    end
  else
    for i = 1, #puts, 2 do redis.call('HSET', key, puts[i], puts[i + 1]) end
    for i = 1, #drops do redis.call('HDEL', key, drops[i]) end
    redis.call('HSET', key, 'owner', session, 'timestamp', string.format('%d', math.floor(due / 1000)))
    redis.call('ZADD', prefix .. 'session:' .. session, due, spid)
    if new then redis.call('PERSIST', content) end
  end
end
return lost
"""
)
"""Linger in seconds, most chunks of short content, session, node, marks, changes: SPIDs of which nothing was
written."""
