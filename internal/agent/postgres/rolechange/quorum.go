package rolechange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

// Quorum is how many of which standbys flush a commit before it is acknowledged. The
// zero value is asynchronous replication.
type Quorum struct {
	Number int
	// Members are the application names of their streams, which are of their volumes.
	Members []string
}

func (q Quorum) validate() error {
	if q.Number == 0 {
		return nil
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(q.Members)))
	if q.Number < 0 || q.Number > len(distinct) || len(distinct) < len(q.Members) || slices.Contains(distinct, "") {
		return fmt.Errorf("%d of the standbys %q cannot acknowledge a commit: name each of them once", q.Number, q.Members)
	}
	return nil
}

// String is synchronous_standby_names.
func (q Quorum) String() string {
	if q.Number == 0 {
		return ""
	}
	names := make([]string, len(q.Members))
	for i, name := range q.Members {
		names[i] = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return fmt.Sprintf("ANY %d (%s)", q.Number, strings.Join(names, ", "))
}

// CurrentQuorum is the one that the server uses, as far as it was given one here.
func (s *Server) CurrentQuorum() Quorum {
	if q := s.quorum.Load(); q != nil {
		return *q
	}
	return Quorum{}
}

// AssumeQuorum takes in that the server was started with a quorum.
func (s *Server) AssumeQuorum(q Quorum) { s.recordNames(q) }

// NoStandby is a quorum that no standby is in: commits wait. A standby that may be
// promoted to a primary with a quorum runs with it, so that no commit is ever
// acknowledged before the quorum is in effect.
var NoStandby = Quorum{Number: 1, Members: []string{"holdfast_none"}}

// requireWaiting returns when a commit of this server would wait for its quorum, if
// it has one. That names are set is passed to commits by the checkpointer, which may
// take its time: before it begins a checkpoint it has done so.
func (s *Server) requireWaiting(ctx context.Context) error {
	if s.live.SynchronousNames == "" {
		s.waits = false
		return nil
	}
	if s.waits {
		return nil
	}
	conn, err := s.connect(ctx, "holdfast-quorum")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "checkpoint"); err != nil {
		return fmt.Errorf("have commits wait for the quorum: %w", err)
	}
	s.waits = true
	return nil
}

// SetQuorum gives a primary another quorum. It returns when every process uses it and
// it has flushed all that was acknowledged before; for asynchronous replication, when
// it is set. Until then commits wait, and they go on waiting after an error.
func (s *Server) SetQuorum(ctx context.Context, q Quorum) error {
	if err := q.validate(); err != nil {
		return err
	}
	if q.Number == 0 {
		s.waits = false
		return s.setNames(ctx, q)
	}
	// First none acknowledges: when each process is seen to know that, none goes by
	// an earlier quorum any more. Between two quorums with the same members, what a
	// process goes by does not show.
	if err := s.setNames(ctx, NoStandby); err != nil {
		return err
	}
	if err := s.waitSenders(ctx, nil); err != nil {
		return err
	}
	probe, err := s.beginProbe(ctx)
	if err != nil {
		return fmt.Errorf("set the quorum: %w", err)
	}
	defer probe.end()
	s.waits = true
	if err := s.setNames(ctx, q); err != nil {
		return err
	}
	if err := s.waitSenders(ctx, q.Members); err != nil {
		return err
	}
	// Its commit stands after all that was acknowledged before.
	return probe.wait(ctx)
}

func (s *Server) setNames(ctx context.Context, q Quorum) error {
	s.recordNames(q)
	if err := s.applySettings(ctx, Live{Upstream: s.live.Upstream, SynchronousNames: q.String()}); err != nil {
		return fmt.Errorf("set the quorum: %w", err)
	}
	return nil
}

// recordNames keeps which standbys were ever in a quorum of this run.
func (s *Server) recordNames(q Quorum) {
	s.quorum.Store(&q)
	for _, name := range q.Members {
		s.named[strings.ToLower(name)] = true
	}
}

// waitSenders waits until each process that streams to a standby counts it as a
// member, or does not. It says so when it has read the settings.
func (s *Server) waitSenders(ctx context.Context, members []string) error {
	for {
		late, err := s.listLateSenders(ctx, members)
		if err != nil {
			return fmt.Errorf("set the quorum: %w", err)
		}
		if len(late) == 0 {
			return nil
		}
		if !clock.Sleep(ctx, poll) {
			return fmt.Errorf("the streams to %s do not take up the quorum: commits wait until it is set again", strings.Join(late, ", "))
		}
	}
}

// listLateSenders lists the standbys whose streams go by another quorum. A stream that
// has reported no position shows no priority, whatever it goes by; that matters for a
// name that was in a quorum. One that has not begun reads the settings first.
func (s *Server) listLateSenders(ctx context.Context, members []string) (late []string, err error) {
	err = s.o.Session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, `select application_name::text, coalesce(sync_priority, 0)::int4, flush_lsn is not null
			from pg_stat_replication where state in ('catchup', 'streaming', 'stopping')`)
		if err != nil {
			return err
		}
		var name string
		var priority int
		var reports bool
		_, err = pgx.ForEachRow(rows, []any{&name, &priority, &reports}, func() error {
			member := slices.ContainsFunc(members, func(m string) bool { return strings.EqualFold(m, name) })
			if member != (priority > 0) || !reports && s.named[strings.ToLower(name)] {
				late = append(late, name)
			}
			return nil
		})
		return err
	})
	return late, err
}

// probe is a commit that waits for the quorum.
type probe struct {
	conn *pgx.Conn
	stop context.CancelFunc
	done chan error
}

// beginProbe commits something, and returns when that is seen to wait: then all
// commits do.
func (s *Server) beginProbe(ctx context.Context) (*probe, error) {
	for {
		p, err := s.commitProbe(ctx)
		if err != nil {
			return nil, err
		}
		waits, err := s.isProbeWaiting(ctx, p)
		if waits {
			return p, nil
		}
		p.end()
		if err != nil {
			return nil, err
		}
		if !clock.Sleep(ctx, poll) {
			return nil, errors.New("commits do not wait for the quorum: the checkpointer does not take up the settings")
		}
	}
}

func (s *Server) commitProbe(ctx context.Context) (*probe, error) {
	conn, err := s.connect(ctx, "holdfast-quorum")
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "set synchronous_commit to on; set statement_timeout to 0; set idle_session_timeout to 0"); err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	commit, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &probe{conn: conn, stop: stop, done: make(chan error, 1)}
	go func() {
		_, err := conn.Exec(commit, "select pg_logical_emit_message(true, 'holdfast', '')")
		p.done <- err
	}()
	return p, nil
}

// isProbeWaiting says whether the probe waits for its quorum; false once it does not.
func (s *Server) isProbeWaiting(ctx context.Context, p *probe) (bool, error) {
	pid := p.conn.PgConn().PID()
	for {
		select {
		case err := <-p.done:
			p.done <- err
			return false, err
		case <-ctx.Done():
			return false, ctx.Err()
		default:
		}
		waits := false
		err := s.query(ctx, fmt.Sprintf("select exists (select from pg_stat_activity where pid = %d and wait_event = 'SyncRep')", pid), &waits)
		if waits || err != nil {
			return waits, err
		}
	}
}

// wait waits until the quorum has flushed the probe's commit.
func (p *probe) wait(ctx context.Context) error {
	select {
	case err := <-p.done:
		p.done <- err
		if err != nil {
			return fmt.Errorf("set the quorum: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the quorum has not flushed all that was acknowledged before: its standbys do not stream, or are behind: %w", ctx.Err())
	}
}

// end ends the probe's session, and its wait.
func (p *probe) end() {
	p.stop()
	p.done <- <-p.done
	_ = p.conn.Close(context.Background())
}
