// Package logarchive is what the archives of all databases share, whatever they hold: whose
// an archive is, and what is known to be missing in it.
package logarchive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Names of objects beside those of the files.
const (
	ownerName = "owner"
	// refusedName says why nothing more is ever stored.
	refusedName = "refused"
	// GapPrefix begins the records of what is missing.
	GapPrefix = "gaps/"
)

// Owner is who an archive is of.
type Owner struct {
	Kind             string `json:"kind"`
	Namespace        string `json:"namespace"`
	Cluster          string `json:"cluster"`
	ClusterUID       string `json:"clusterUID"`
	SystemIdentifier string `json:"systemIdentifier"`
}

// Refusal is what an archive refuses, and no other try repairs.
type Refusal struct{ Message string }

func (r *Refusal) Error() string { return r.Message }

// Refuse makes a refusal.
func Refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// ClassifyError tells failures of an archive apart: two of one class have the same reason, though
// a store gives each of its errors a number. No other try repairs a permanent one.
func ClassifyError(err error) (class string, permanent bool) {
	var refused *Refusal
	var known *store.Error
	switch {
	case errors.As(err, &refused):
		return refused.Message, true
	case errors.As(err, &known):
		return known.Field + "|" + known.Remedy, known.Permanent
	default:
		return "", false
	}
}

// OpenStore opens the store of an archive, with the credentials that are mounted in a
// directory.
func OpenStore(ctx context.Context, at agentapi.BackupStore, secret store.Secret) (*store.Store, error) {
	return store.Open(ctx, store.Location{URL: at.URL, Endpoint: at.Endpoint, Region: at.Region, PathStyle: at.PathStyle}, secret)
}

// Claim makes the archive below a prefix the owner's, before anything is stored there. It
// refuses one of another owner: two database systems must never write into one.
func Claim(ctx context.Context, s *store.Store, prefix string, o Owner) error {
	data, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		return err
	}
	err = s.Create(ctx, prefix+ownerName, append(data, '\n'))
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	found, err := ReadOwner(ctx, s, prefix)
	if err != nil {
		return err
	}
	if found != o {
		return Refuse("the archive at %s is of %s %s/%s with the UID %s and the database system %s, and this one has the UID %s and the database system %s: name another backup.destination",
			prefix, found.Kind, found.Namespace, found.Cluster, found.ClusterUID, found.SystemIdentifier, o.ClusterUID, o.SystemIdentifier)
	}
	return nil
}

// ReadOwner reads whose the archive is; NotFound where it has none yet.
func ReadOwner(ctx context.Context, s *store.Store, prefix string) (o Owner, err error) {
	data, err := s.Get(ctx, prefix+ownerName)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, Refuse("%s%s does not say whose archive it is: %v", prefix, ownerName, err)
	}
	return o, nil
}

// RecordRefusal records why nothing more is ever stored below a prefix. The first record counts.
func RecordRefusal(ctx context.Context, s *store.Store, prefix, why string) error {
	err := s.Create(ctx, prefix+refusedName, []byte(why+"\n"))
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// ReadRefusal returns why nothing more is stored below a prefix, as a Refusal; nil where nothing
// is recorded.
func ReadRefusal(ctx context.Context, s *store.Store, prefix string) error {
	why, err := s.Get(ctx, prefix+refusedName)
	switch {
	case store.NotFound(err):
		return nil
	case err != nil:
		return err
	}
	return &Refusal{strings.TrimSpace(string(why))}
}

// RecordGap records by a name what is missing for good. It may be recorded twice: the first
// record counts.
func RecordGap(ctx context.Context, s *store.Store, prefix, name string, gap agentapi.ArchiveGap) error {
	data, err := json.MarshalIndent(gap, "", " ")
	if err != nil {
		return err
	}
	err = s.Create(ctx, prefix+GapPrefix+name, append(data, '\n'))
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// ListGapNames lists the names by which gaps are recorded.
func ListGapNames(ctx context.Context, s *store.Store, prefix string) ([]string, error) {
	all, err := s.List(ctx, prefix+GapPrefix)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = strings.TrimPrefix(o.Key, prefix+GapPrefix)
	}
	return names, nil
}

// ListGaps lists all that is known to be missing, the one that ended last at the end.
func ListGaps(ctx context.Context, s *store.Store, prefix string) ([]agentapi.ArchiveGap, error) {
	all, err := s.List(ctx, prefix+GapPrefix)
	if err != nil {
		return nil, err
	}
	gaps := make([]agentapi.ArchiveGap, len(all))
	for i, o := range all {
		data, err := s.Get(ctx, o.Key)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &gaps[i]); err != nil {
			return nil, Refuse("%s does not say what is missing: %v", o.Key, err)
		}
	}
	slices.SortStableFunc(gaps, func(a, b agentapi.ArchiveGap) int { return a.Ended.Compare(b.Ended) })
	return gaps, nil
}
