-- The order is kstatus's, so that Argo CD and Flux agree. What serves with
-- something broken is Healthy and says so: a lost replica must not fail a sync.
local function answer(status, message)
  return { status = status, message = message }
end

local metadata = obj.metadata or {}
local spec = obj.spec or {}
local status = obj.status or {}

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function is(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end

local function message(kind, default)
  local condition = conditions[kind]
  if condition == nil or condition.message == nil or condition.message == "" then
    return default
  end
  return condition.message
end

if metadata.deletionTimestamp ~= nil then
  return answer("Progressing", message("Ready", "The cluster is being deleted"))
end
if status.observedGeneration == nil or status.observedGeneration ~= metadata.generation then
  return answer("Progressing", "Waiting for the operator to see the newest spec")
end
if is("Stalled", "True") then
  return answer("Degraded", message("Stalled", "Only a person can go on"))
end
if is("Reconciling", "True") then
  return answer("Progressing", message("Reconciling", "A change is under way"))
end
if spec.suspend == true then
  return answer("Suspended", message("Ready", "Suspended"))
end
if is("Ready", "True") then
  if is("Degraded", "True") then
    return answer("Healthy", message("Ready", "Serving") .. "; degraded: " .. message("Degraded", "something is broken"))
  end
  return answer("Healthy", message("Ready", "Serving"))
end
-- Rolled out, and the database no longer serves.
if is("Available", "False") then
  return answer("Degraded", message("Available", "The database does not serve"))
end
return answer("Progressing", message("Ready", "Waiting for the operator to say whether the database serves"))
