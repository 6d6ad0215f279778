-- The order is kstatus's, so that Argo CD and Flux agree: a sync waits until the
-- backup is complete and verified, and fails with it.
local function answer(status, message)
  return { status = status, message = message }
end

local metadata = obj.metadata or {}
local status = obj.status or {}

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function is(kind)
  return conditions[kind] ~= nil and conditions[kind].status == "True"
end

local function message(kind, default)
  local condition = conditions[kind]
  if condition == nil or condition.message == nil or condition.message == "" then
    return default
  end
  return condition.message
end

if metadata.deletionTimestamp ~= nil then
  return answer("Progressing", message("Ready", "What is stored is being removed"))
end
if status.observedGeneration == nil or status.observedGeneration ~= metadata.generation then
  return answer("Progressing", "Waiting for the operator to see the backup")
end
if is("Stalled") then
  return answer("Degraded", message("Stalled", "The backup failed"))
end
if is("Ready") then
  return answer("Healthy", message("Ready", "Complete and verified"))
end
return answer("Progressing", message("Ready", "The backup is under way"))
