package settings

import "strconv"

// Memory of the container in bytes. Without a declared limit, Limit is the whole node's:
// see agentapi.EnvMemoryLimit. Request is 0 where none is declared; a limit without one is
// a request, too.
type Memory struct{ Limit, Request int64 }

// usable is what the member surely has: the request, and at most the limit. Without a
// request it is taken to have the least.
func (m Memory) usable() int64 {
	switch {
	case m.Request > 0 && m.Limit > 0:
		return min(m.Request, m.Limit)
	case m.Request > 0:
		return m.Request
	}
	return LeastMemory
}

const (
	// LeastMemory is what a member needs, in bytes: with less it starts, and may be
	// killed under load.
	LeastMemory = gibibyte
	// messageCache is what the group keeps for members that are behind, in bytes.
	messageCache = 128 * mebibyte
	// fixedMemory is what the server takes beside the buffer pool, with that cache and
	// the connections of a small member.
	fixedMemory = 640 * mebibyte
	// poolStep is the unit of the buffer pool's size: MySQL would round up.
	poolStep = 128 * mebibyte
)

// memorySettings divide the memory. The buffer pool gets a third of the first
// gibibyte that the server itself does not need, and three quarters of the rest.
func memorySettings(m Memory) map[string]string {
	memory := m.usable()
	free := max(0, memory-fixedMemory)
	pool := min(free, gibibyte)/3 + max(0, free-gibibyte)*3/4
	pool = max(poolStep, pool/poolStep*poolStep)
	s := map[string]string{
		"innodb_buffer_pool_size":       formatBytes(pool),
		"innodb_buffer_pool_chunk_size": formatBytes(poolStep),
		"innodb_log_buffer_size":        formatBytes(clampValue(memory/64, 8*mebibyte, 64*mebibyte)),
		"temptable_max_ram":             formatBytes(clampValue(memory/32, 16*mebibyte, gibibyte)),
		"tmp_table_size":                formatBytes(clampValue(memory/64, 16*mebibyte, 64*mebibyte)),
		"key_buffer_size":               formatBytes(mebibyte),
		"max_connections":               strconv.FormatInt(clampValue(memory/(10*mebibyte), 100, 1000), 10),
	}
	if memory < 2*gibibyte {
		// The performance schema sizes itself by these two, and is then small.
		s["table_definition_cache"], s["table_open_cache"] = "400", "2000"
	}
	return s
}
