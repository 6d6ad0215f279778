package trends

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/capacity"
	"github.com/holdfast-db/holdfast/internal/sizing"
)

const (
	// FileName is the file of Recorder on the volume. Its name begins with a dot, so that it
	// is never taken for data.
	FileName = ".holdfast-trends"
	// UsageFileName is that of UsageRecorder.
	UsageFileName = ".holdfast-usage"
	// fileVersion is the first byte of FileName. Another one is not read.
	fileVersion = 1
	// savedSpace must be free for a write.
	savedSpace = 64 << 20
	// mostSamples bounds what is read of a file that something else wrote.
	mostSamples = 1000
)

// Volume is where histories are kept.
type Volume struct {
	// Dir is the volume, and Space measures it.
	Dir   string
	Space func() diskspace.Space
	// Serves says whether the database does: the volume is this member's then, and no data is
	// copied to it.
	Serves func() bool
}

// save writes a file while the database serves, which holds the volume, unless the volume
// needs its space. That it fails is no failure of the member.
func (v Volume) save(log *slog.Logger, name string, encode func() ([]byte, error)) {
	if !v.Serves() || !v.Space().Fits(savedSpace) {
		return
	}
	data, err := encode()
	if err == nil {
		err = atomicfile.WriteDurably(filepath.Join(v.Dir, name), data)
	}
	if err != nil {
		log.Info("what was measured is not saved", "file", name, "error", err.Error())
	}
}

// load reads what an earlier agent saved, if there is something.
func (v Volume) load(name string, decode func([]byte) error) error {
	data, err := os.ReadFile(filepath.Join(v.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = decode(data)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

func (r *Recorder) save() {
	r.o.Volume.save(r.o.Log, FileName, func() ([]byte, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return encode(&r.history)
	})
}

func (r *Recorder) load() error {
	return r.o.Volume.load(FileName, func(data []byte) error {
		history, err := decode(data)
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.history = history
		return nil
	})
}

func (r *UsageRecorder) save() {
	r.o.Volume.save(r.o.Log, UsageFileName, func() ([]byte, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.history.MarshalBinary()
	})
}

func (r *UsageRecorder) load() error {
	return r.o.Volume.load(UsageFileName, func(data []byte) error {
		var history sizing.History
		if err := history.UnmarshalBinary(data); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, k := range r.history.Kills { // the pod is observed meanwhile
			history.AddKill(time.Unix(k.Time, 0), k.Memory)
		}
		r.history = history
		return nil
	})
}

// encode writes a version, and two lists of samples with their lengths.
func encode(h *capacity.History) ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte(fileVersion)
	for _, list := range [][]capacity.Sample{h.Trend, h.Recent} {
		if err := errors.Join(binary.Write(&out, binary.LittleEndian, uint32(len(list))), binary.Write(&out, binary.LittleEndian, list)); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func decode(data []byte) (h capacity.History, err error) {
	in := bytes.NewReader(data)
	version, err := in.ReadByte()
	if err != nil || version != fileVersion {
		return h, errors.New("it is of another version")
	}
	for _, list := range []*[]capacity.Sample{&h.Trend, &h.Recent} {
		var length uint32
		if err := binary.Read(in, binary.LittleEndian, &length); err != nil {
			return capacity.History{}, err
		}
		if length > mostSamples {
			return capacity.History{}, errors.New("it has too many samples")
		}
		*list = make([]capacity.Sample, length)
		if err := binary.Read(in, binary.LittleEndian, *list); err != nil {
			return capacity.History{}, err
		}
	}
	return h, nil
}
