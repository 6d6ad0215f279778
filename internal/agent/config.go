package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Config is the newest ClusterConfig, and its hash.
type Config struct {
	agentapi.ClusterConfig
	Hash string
	// Live says that the API server gave it; otherwise it is that of the mounted file,
	// which may be an older one.
	Live bool
}

// ConfigSource follows the ConfigMap of the cluster; the mounted file serves
// until the API server has answered once.
type ConfigSource struct {
	id   identity.Identity
	file string
	log  *slog.Logger

	mu      sync.Mutex
	current *Config
	live    bool
	changed chan struct{}
}

// NewConfigSource reads the mounted file and follows the ConfigMap.
func NewConfigSource(id identity.Identity, file string, log *slog.Logger) *ConfigSource {
	return &ConfigSource{id: id, file: file, log: log, changed: make(chan struct{})}
}

// Current returns the newest configuration, nil before the first, and a
// channel that is closed when there is a newer one.
func (c *ConfigSource) Current() (*Config, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.changed
}

// Follow keeps the configuration current until ctx ends.
func (c *ConfigSource) Follow(ctx context.Context, client kubernetes.Interface) {
	go c.fromFile(ctx)
	followObject(ctx, client.CoreV1().ConfigMaps(c.id.Namespace), c.id.Cluster+"-config",
		func(m *corev1.ConfigMap) { c.takeConfig([]byte(m.Data[agentapi.ConfigKey]), true) },
		func(err error) { c.log.Info("cannot follow the ConfigMap", "error", err.Error()) })
}

// fromFile reads the mounted file until there is a configuration.
func (c *ConfigSource) fromFile(ctx context.Context) {
	for {
		if data, err := os.ReadFile(c.file); err == nil {
			c.takeConfig(data, false)
		}
		if current, _ := c.Current(); current != nil || !clock.Sleep(ctx, time.Second) {
			return
		}
	}
}

// takeConfig sets a configuration. One from the file never replaces one from the
// API server, and one that cannot be read or is another cluster's replaces
// nothing.
func (c *ConfigSource) takeConfig(data []byte, live bool) {
	next, err := parseConfig(data, c.id)
	if err != nil {
		c.log.Warn("configuration ignored", "error", err.Error())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live && !live {
		return
	}
	c.live = live
	if c.current != nil && c.current.Hash == next.Hash && c.current.Live == live {
		return
	}
	next.Live = live
	c.current = next
	close(c.changed)
	c.changed = make(chan struct{})
}

func parseConfig(data []byte, id identity.Identity) (*Config, error) {
	next := &Config{Hash: agentapi.HashConfig(data)}
	if err := json.Unmarshal(data, &next.ClusterConfig); err != nil {
		return nil, fmt.Errorf("read the cluster's configuration: %w", err)
	}
	if next.Name != id.Cluster || next.Namespace != id.Namespace {
		return nil, fmt.Errorf("the configuration is that of %s/%s", next.Namespace, next.Name)
	}
	return next, nil
}
