package trends

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/capacity"
)

const (
	// FileName is the file on the volume. Its name begins with a dot, so that it is never
	// taken for data.
	FileName = ".holdfast-trends"
	// fileVersion is the first byte of the file. Another one is not read.
	fileVersion = 1
	// savedSpace must be free for a write.
	savedSpace = 64 << 20
	// mostSamples bounds what is read of a file that something else wrote.
	mostSamples = 1000
)

// save writes the file while the database serves, which holds the volume, unless the volume
// needs its space. That it fails is no failure of the member.
func (r *Recorder) save() {
	if !r.o.Serves() || !r.o.Space().Fits(savedSpace) {
		return
	}
	r.mu.Lock()
	data, err := encode(&r.history)
	r.mu.Unlock()
	if err == nil {
		err = atomicfile.WriteDurably(filepath.Join(r.o.Dir, FileName), data)
	}
	if err != nil {
		r.o.Log.Info("the history of the volume is not saved", "error", err.Error())
	}
}

// load reads what an earlier agent saved, if there is something.
func (r *Recorder) load() error {
	data, err := os.ReadFile(filepath.Join(r.o.Dir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	history, err := decode(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", FileName, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = history
	return nil
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
