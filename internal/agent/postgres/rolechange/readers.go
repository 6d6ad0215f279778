package rolechange

import "context"

// endReadersQuery ends the sessions that may hold replay, if it is held: all that are
// in a transaction. What a session holds is not visible from outside.
const endReadersQuery = `select count(*) filter (where pg_terminate_backend(a.pid)) from pg_stat_activity a
	where a.backend_type = 'client backend' and a.pid <> pg_backend_pid() and a.xact_start is not null
	and exists (select from pg_stat_activity s where s.backend_type = 'startup'
		and (s.wait_event like 'RecoveryConflict%' or s.wait_event_type in ('BufferPin', 'Lock')))`

// endReaders ends the readers that hold replay.
func (s *Server) endReaders(ctx context.Context) {
	var ended int
	if err := s.query(ctx, endReadersQuery, &ended); err != nil {
		s.o.Log.Info("readers that hold replay are not ended yet", "error", err.Error())
		return
	}
	if ended > 0 {
		s.o.Log.Warn("ended readers that held replay", "sessions", ended)
		// Replay looks for them up to a second apart; a signal wakes it.
		if err := s.o.Postmaster.ReloadSettings(); err != nil {
			s.o.Log.Info("replay is not woken", "error", err.Error())
		}
	}
}
