package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Names of the objects of a backup, below its attempt.
const (
	manifestName = "manifest.json"
	dataPrefix   = "data/"
)

const (
	// manifestFormat is raised when an older program could not restore by it.
	manifestFormat = 1
	compression    = "zstd"
)

// Manifest names everything that a backup consists of. It is a file's format: fields
// are added, and never moved.
type Manifest struct {
	Format int `json:"format"`
	// Kind, Namespace, Cluster and ClusterUID of what was backed up.
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Cluster    string `json:"cluster"`
	ClusterUID string `json:"clusterUID"`
	// Backup and BackupUID of the Backup that it was made for.
	Backup    string `json:"backup"`
	BackupUID string `json:"backupUID"`
	// Source is the member that was copied.
	Source string `json:"source"`
	// Version and SystemIdentifier of the database.
	Version          string `json:"version"`
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
	// Start and End position in the database's WAL.
	Start string `json:"start,omitempty"`
	End   string `json:"end"`
	// Started and Finished are the times of the copy.
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// Ended is when the database had written End, by the latest of the clocks
	// that the copy has; zero where it does not say so.
	Ended time.Time `json:"ended,omitzero"`
	// Compression of the stream that the parts are cut from.
	Compression string       `json:"compression"`
	Parts       []store.Part `json:"parts"`
	// DataSize and SHA256 of the stream before it was compressed.
	DataSize int64  `json:"dataSize"`
	SHA256   string `json:"sha256"`
}

// EndedBy is when the database had surely written End.
func (m Manifest) EndedBy() time.Time {
	if m.Ended.IsZero() {
		return m.Finished // by another clock, and later
	}
	return m.Ended
}

func (m Manifest) renderJSON() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("render the manifest: %w", err)
	}
	return append(data, '\n'), nil
}

// sumParts is the size of what is stored.
func (m Manifest) sumParts() (n int64) {
	for _, p := range m.Parts {
		n += p.Size
	}
	return n
}

func (m Manifest) buildResult(key, sum string) *v1alpha1.BackupResult {
	bytes := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
	return &v1alpha1.BackupResult{
		Size: bytes(m.sumParts()), DataSize: bytes(m.DataSize), Source: m.Source, Version: m.Version, SystemIdentifier: m.SystemIdentifier,
		StartPosition: m.Start, EndPosition: m.End, Manifest: key, Checksum: sum,
	}
}

func checksumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ReadManifest reads a manifest and its checksum.
func ReadManifest(ctx context.Context, s *store.Store, key string) (Manifest, string, error) {
	data, err := s.Get(ctx, key)
	if err != nil {
		return Manifest{}, "", err
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, "", &Permanent{fmt.Errorf("%s is no manifest: %w", key, err)}
	}
	if m.Format != manifestFormat || m.Compression != compression {
		return Manifest{}, "", &Permanent{fmt.Errorf("%s has the format %d with compression %q, which this version of Holdfast does not know: use a newer one", key, m.Format, m.Compression)}
	}
	return m, checksumOf(data), nil
}

// OpenData is the stream that a backup was made from. It must be closed.
func OpenData(ctx context.Context, s *store.Store, prefix string, m Manifest) (io.ReadCloser, error) {
	parts := &heard{ReadCloser: s.ReadParts(ctx, prefix, m.Parts)}
	unpacked, err := zstd.NewReader(parts, zstd.WithDecoderConcurrency(2))
	if err != nil {
		return nil, errors.Join(err, parts.Close())
	}
	return &data{unpacked, parts}, nil
}

// heard remembers how the parts ended.
type heard struct {
	io.ReadCloser
	failed bool
}

// Read implements io.Reader.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.failed = h.failed || err != nil && !errors.Is(err, io.EOF)
	return n, err
}

type data struct {
	*zstd.Decoder
	parts *heard
}

// Read implements io.Reader. Parts that are all as they were written, and still
// cannot be unpacked, never can.
func (d *data) Read(p []byte) (int, error) {
	n, err := d.Decoder.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !d.parts.failed {
		err = &Permanent{fmt.Errorf("unpack what is stored: %w", err)}
	}
	return n, err
}

// WriteTo would read past Read.
func (d *data) WriteTo(to io.Writer) (int64, error) {
	return io.Copy(to, struct{ io.Reader }{d})
}

// Close implements io.Closer.
func (d *data) Close() error {
	err := d.parts.Close()
	d.Decoder.Close()
	return err
}
