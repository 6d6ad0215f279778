package anomalies

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/anomaly"
)

const (
	// filePrefix and a role are the name of a file on the volume. It begins with a dot, so
	// that it is never taken for data.
	filePrefix = ".holdfast-usual-"
	// fileVersion is the first byte of the file. Another one is not read.
	fileVersion = 1
	// savedSpace must be free for a write.
	savedSpace = 64 << 20
	// oldest is how old what was learned may be: the load may be another one since.
	oldest = 14 * 24 * time.Hour
)

func (r *Recorder) path(role string) string { return filepath.Join(r.o.Dir, filePrefix+role) }

// save writes what was learned while the database serves, which holds the volume.
func (r *Recorder) save() {
	r.measuring.Lock()
	defer r.measuring.Unlock()
	if r.detector != nil && r.o.Status().Serving {
		r.saveModel(r.before.role)
	}
}

// saveModel writes what was learned in a role, unless the volume needs its space. That it
// fails is no failure of the member.
func (r *Recorder) saveModel(role string) {
	if !r.o.Space().Fits(savedSpace) {
		return
	}
	data, err := encode(r.o.Signals.List, r.detector.Model)
	if err == nil {
		err = atomicfile.WriteDurably(r.path(role), data)
	}
	if err != nil {
		r.o.Log.Info("what is usual is not saved", "error", err.Error())
	}
}

// load reads what was learned in a role: nothing where that is missing, damaged or old.
func (r *Recorder) load(role string, now time.Time) *anomaly.Model {
	data, err := os.ReadFile(r.path(role))
	if errors.Is(err, fs.ErrNotExist) {
		return &anomaly.Model{}
	}
	var learned *anomaly.Model
	if err == nil {
		learned, err = decode(r.o.Signals.List, data)
	}
	if err == nil && now.Sub(time.Unix(learned.Time, 0)) > oldest {
		err = fmt.Errorf("it is older than %s", oldest)
	}
	if err != nil {
		r.o.Log.Info("what is usual is learned anew", "reason", err.Error())
		return &anomaly.Model{}
	}
	return learned
}

// encode writes a version, which signals there are, and what was learned of them.
func encode(signals []anomaly.Signal, learned *anomaly.Model) ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte(fileVersion)
	err := errors.Join(binary.Write(&out, binary.LittleEndian, hashSignals(signals)), binary.Write(&out, binary.LittleEndian, learned))
	return out.Bytes(), err
}

func decode(signals []anomaly.Signal, data []byte) (*anomaly.Model, error) {
	in := bytes.NewReader(data)
	var names uint64
	version, err := in.ReadByte()
	if err != nil || version != fileVersion || binary.Read(in, binary.LittleEndian, &names) != nil || names != hashSignals(signals) {
		return nil, errors.New("it is of another version")
	}
	learned := new(anomaly.Model)
	if err := binary.Read(in, binary.LittleEndian, learned); err != nil {
		return nil, err
	}
	return learned, nil
}

// hashSignals changes when a signal is another one, or is measured in another way.
func hashSignals(signals []anomaly.Signal) uint64 {
	sum := fnv.New64a()
	for _, s := range signals {
		_, _ = fmt.Fprintln(sum, s.Name, s.Unit, s.Counter, s.Floor)
	}
	return sum.Sum64()
}
