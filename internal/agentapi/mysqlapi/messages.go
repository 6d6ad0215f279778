package mysqlapi

// SwitchoverPath takes an empty object from the primary, which is about to move its lead, and
// answers one: the member observes its server often for a while, so that the next primary
// is soon known. An earlier agent answers 404 Not Found, and that member is known a little
// later.
const SwitchoverPath = "/switchover"
