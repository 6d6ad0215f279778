package sizing

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// formatVersion is the first byte of a history that is written. Another one is not read.
const formatVersion = 1

// MarshalBinary writes a history, in less than 2 KiB.
func (h *History) MarshalBinary() ([]byte, error) {
	var out bytes.Buffer
	lengths := [2]uint32{uint32(len(h.Days)), uint32(len(h.Kills))}
	var errs []error
	for _, part := range []any{byte(formatVersion), lengths, h.CPU, h.Days, h.Kills} {
		errs = append(errs, binary.Write(&out, binary.LittleEndian, part))
	}
	return out.Bytes(), errors.Join(errs...)
}

// UnmarshalBinary reads what MarshalBinary wrote. A history that is damaged leaves this one as
// it was.
func (h *History) UnmarshalBinary(data []byte) error {
	in := bytes.NewReader(data)
	version, err := in.ReadByte()
	if err != nil || version != formatVersion {
		return errors.New("it is of another version")
	}
	var lengths [2]uint32
	if err := binary.Read(in, binary.LittleEndian, &lengths); err != nil {
		return err
	}
	if lengths[0] > daysKept+2 || lengths[1] > killsKept {
		return errors.New("it is too long")
	}
	read := History{Days: make([]Day, lengths[0]), Kills: make([]Kill, lengths[1])}
	for _, part := range []any{&read.CPU, read.Days, read.Kills} {
		if err := binary.Read(in, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	*h = read
	return nil
}
