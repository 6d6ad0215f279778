package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// maintainRun takes up what changes outside, as far as that goes without a restart,
// and says what waits for one.
func (l *etcdRun) maintainRun(ctx context.Context) {
	for {
		config, configChanged := l.Config.Current()
		bundle, certificateChanged := l.Certificates.Current()
		if bundle != nil {
			if err := l.writeCertificates(bundle); err != nil {
				l.log.Warn("the certificate is not taken up", "error", err.Error())
			}
		}
		pause := maintenanceInterval
		if l.settleMember(ctx) {
			l.keepRecorded(ctx, clock.Boottime())
		} else {
			pause = settleInterval
		}
		l.keepVersion()
		l.judgeRaftLog()
		l.takeConfig(ctx, config)
		l.checkOvertaken(ctx)
		l.discardAside()
		select {
		case <-ctx.Done():
			return
		case <-configChanged:
		case <-certificateChanged:
		case <-time.After(pause):
		}
	}
}

// settleMember records the member, and says whether it is.
func (l *etcdRun) settleMember(ctx context.Context) bool {
	l.mu.Lock()
	settled := l.self != ""
	l.mu.Unlock()
	if settled {
		return true
	}
	id, err := l.guard.settleMember(ctx)
	if err != nil {
		l.log.Info("the member is not recorded yet", "error", err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.self, l.elsewhere = id, describeClaim(err)
	return id != ""
}

// keepRecorded checks now and then whether the member is still recorded: without
// its record, it would be unknown who it was once its volume is lost.
func (l *etcdRun) keepRecorded(ctx context.Context, now time.Duration) {
	if now < l.recordDue {
		return
	}
	err := l.guard.ensureRecorded(ctx)
	l.recordDue = now + recordInterval
	if err != nil {
		l.log.Error("the member is not recorded", "error", err.Error())
		if describeClaim(err) == "" {
			l.recordDue = now + recordRetry
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elsewhere = describeClaim(err)
}

// describeClaim is what an error says of another volume that claims to be this member;
// empty when it is another error.
func describeClaim(err error) string {
	if errors.Is(err, errElsewhere) {
		return err.Error()
	}
	return ""
}

// keepVersion marks the volume with the version that has served it, for the
// next start, whichever cluster's object it is under.
func (l *etcdRun) keepVersion() {
	l.mu.Lock()
	self, led := l.self, l.led
	l.mu.Unlock()
	if l.versionKept || !led || self == "" {
		return
	}
	if err := keepVersion(l.o.DataDir, self, l.version); err != nil {
		l.log.Warn("cannot keep the version", "error", err.Error())
		return
	}
	l.versionKept = true
	l.Store.Update(func(s *agentapi.Status) {
		changeGroup(s, func(g *etcdapi.GroupStatus) { g.DataVersion = l.version })
	})
}

// takeConfig takes up a new configuration, and what of it etcd runs with.
func (l *etcdRun) takeConfig(ctx context.Context, config *agent.Config) {
	if config == nil {
		return
	}
	declared := l.choice
	if config.Hash != l.declared {
		accepts := func(parameters map[string]string) error {
			args := l.o.commandLine(l.release, start{Data: nowhere}, parameters, config.DataLimit)
			return l.programs.checkArguments(ctx, args)
		}
		var err error
		if declared, err = chooseParameters(config.Parameters, l.choice.Parameters, accepts); err != nil {
			l.log.Warn("configuration not taken up yet", "error", err.Error())
			return
		}
		l.declared, l.next = config.Hash, declared
	} else if l.next.Parameters != nil {
		declared = l.next
	}
	l.reportConfig(config, declared)
}

// reportConfig reports what etcd runs with, and what waits for a restart.
func (l *etcdRun) reportConfig(config *agent.Config, declared choice) {
	pending := agentapi.ListDifferences(declared.Parameters, l.choice.Parameters)
	if config.DataLimit != l.limit {
		pending = append(pending, etcdapi.PendingLimit)
	}
	if bundle, _ := l.Certificates.Current(); bundle != nil && agentapi.HashConfig(bundle.CAPEM) != l.trust {
		pending = append(pending, etcdapi.PendingTrust)
	}
	if l.raftLogOld {
		pending = append(pending, etcdapi.PendingLog)
	}
	slices.Sort(pending)
	if len(pending) == 0 {
		pending = nil
	}
	before := l.Store.Get()
	l.Store.Update(func(s *agentapi.Status) {
		s.PendingRestart, s.ConfigError, s.TrustHash = pending, declared.Refused, l.trust
		if declared.Refused == "" {
			s.ConfigHash = config.Hash
		}
	})
	if after := l.Store.Get(); after.ConfigHash != before.ConfigHash || after.ConfigError != before.ConfigError {
		l.log.Info("configuration", "hash", after.ConfigHash, "refused", after.ConfigError, "pendingRestart", pending)
	}
}

// checkOvertaken asks for another run when the data must not run as it does: it is
// another member's turn, or a request has come.
func (l *etcdRun) checkOvertaken(ctx context.Context) {
	d, f, err := l.guard.planNext(ctx)
	switch {
	case err != nil:
	case d.Action == actSetAside:
		l.log.Warn("stops to begin anew", "because", d.Message)
		l.requestRestart()
	default:
		l.followRecoveryRequest(ctx, d, f)
	}
}

// discardAside removes the data of removed members, once the one in their place
// has had a vote and served for a while.
func (l *etcdRun) discardAside() {
	l.mu.Lock()
	since := l.voting
	l.mu.Unlock()
	if since.IsZero() || time.Since(since) < asideAge {
		return
	}
	if any, err := dropAside(l.o.DataDir); err != nil {
		l.log.Warn("cannot remove the data of removed members", "error", err.Error())
	} else if any {
		l.log.Info("removed the data of removed members")
	}
}
