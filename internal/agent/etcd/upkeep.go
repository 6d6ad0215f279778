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

// upkeep takes up what changes outside, as far as that goes without a restart,
// and says what waits for one.
func (l *life) upkeep(ctx context.Context) {
	for {
		config, configChanged := l.Config.Current()
		bundle, certificateChanged := l.Certificates.Current()
		if bundle != nil {
			if err := l.writeCertificates(bundle); err != nil {
				l.log.Warn("the certificate is not taken up", "error", err.Error())
			}
		}
		pause := upkeepInterval
		if l.settle(ctx) {
			l.keepOnRecord(ctx, clock.Boottime())
		} else {
			pause = settleInterval
		}
		l.keepVersion()
		l.judgeLog()
		l.takeConfig(ctx, config)
		l.overtaken(ctx)
		l.giveUpAside()
		select {
		case <-ctx.Done():
			return
		case <-configChanged:
		case <-certificateChanged:
		case <-time.After(pause):
		}
	}
}

// settle records the member, and says whether it is.
func (l *life) settle(ctx context.Context) bool {
	l.mu.Lock()
	settled := l.self != ""
	l.mu.Unlock()
	if settled {
		return true
	}
	id, err := l.gate.settle(ctx)
	if err != nil {
		l.log.Info("the member is not recorded yet", "error", err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.self, l.elsewhere = id, claim(err)
	return id != ""
}

// keepOnRecord looks now and then whether the register still has the member:
// without its record, nobody would know who it was once its volume is lost.
func (l *life) keepOnRecord(ctx context.Context, now time.Duration) {
	if now < l.recordDue {
		return
	}
	err := l.gate.keep(ctx)
	l.recordDue = now + recordInterval
	if err != nil {
		l.log.Error("the member is not recorded", "error", err.Error())
		if claim(err) == "" {
			l.recordDue = now + recordRetry
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elsewhere = claim(err)
}

// claim is what an error says of another volume that claims to be this member;
// empty when it is another error.
func claim(err error) string {
	if errors.Is(err, errElsewhere) {
		return err.Error()
	}
	return ""
}

// keepVersion marks the volume with the version that has served it, for the
// next start, whichever cluster's object it is under.
func (l *life) keepVersion() {
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

// takeConfig looks at a new configuration, and at what of it etcd runs with.
func (l *life) takeConfig(ctx context.Context, config *agent.Config) {
	if config == nil {
		return
	}
	declared := l.choice
	if config.Hash != l.declared {
		accepts := func(parameters map[string]string) error {
			args := l.o.commandLine(l.release, start{Data: nowhere}, parameters, config.DataLimit)
			return l.programs.accepts(ctx, args)
		}
		var err error
		if declared, err = choose(config.Parameters, l.choice.Parameters, accepts); err != nil {
			l.log.Warn("configuration not taken up yet", "error", err.Error())
			return
		}
		l.declared, l.next = config.Hash, declared
	} else if l.next.Parameters != nil {
		declared = l.next
	}
	l.tell(config, declared)
}

// tell reports what etcd runs with, and what waits for a restart.
func (l *life) tell(config *agent.Config, declared choice) {
	pending := differing(declared.Parameters, l.choice.Parameters)
	if config.DataLimit != l.limit {
		pending = append(pending, etcdapi.PendingLimit)
	}
	if bundle, _ := l.Certificates.Current(); bundle != nil && agentapi.HashConfig(bundle.CAPEM) != l.trust {
		pending = append(pending, etcdapi.PendingTrust)
	}
	if l.logOld {
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

// overtaken asks for another run when the data must not run as it does: it is
// another member's turn, or an order has come.
func (l *life) overtaken(ctx context.Context) {
	d, f, err := l.gate.next(ctx)
	switch {
	case err != nil:
	case d.Action == actSetAside:
		l.log.Warn("stops to begin anew", "because", d.Message)
		l.again()
	default:
		l.obey(ctx, d, f)
	}
}

// giveUpAside removes the data of removed members, once the one in their place
// has had a vote and served for a while.
func (l *life) giveUpAside() {
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
