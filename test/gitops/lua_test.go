package gitops

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// scriptLimit is what Argo CD gives a script.
const scriptLimit = time.Second

// runLua runs a script as Argo CD runs those of argocd-cm: with the libraries
// base, table, package and two functions of os only, and the object in the
// global obj. It answers the returned table as JSON.
func runLua(t *testing.T, script string, obj map[string]any) (json.RawMessage, error) {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	state.PreloadModule(lua.OsLibName, func(l *lua.LState) int {
		l.Push(l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
			"date": func(l *lua.LState) int { l.Push(lua.LString("0001-01-01T00:00:00")); return 1 },
			"time": func(l *lua.LState) int { l.Push(lua.LNumber(0)); return 1 },
		}))
		return 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), scriptLimit)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("actionParams", state.NewTable())
	state.SetGlobal("obj", toLua(state, obj))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returns %s, not a table", state.Get(-1).Type())
	}
	return json.Marshal(fromLua(table))
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		table := state.NewTable()
		for _, item := range v {
			table.Append(toLua(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range v {
			table.RawSetString(key, toLua(state, item))
		}
		return table
	}
	return lua.LNil
}

// fromLua answers nil for an empty table, which may be a map or a list.
func fromLua(value lua.LValue) any {
	switch v := value.(type) {
	case lua.LBool:
		return bool(v)
	case lua.LNumber:
		return float64(v)
	case lua.LString:
		return string(v)
	case *lua.LTable:
		if v.Len() > 0 {
			var list []any
			for i := 1; i <= v.Len(); i++ {
				list = append(list, fromLua(v.RawGetInt(i)))
			}
			return list
		}
		var fields map[string]any
		v.ForEach(func(key, item lua.LValue) {
			if fields == nil {
				fields = map[string]any{}
			}
			fields[key.String()] = fromLua(item)
		})
		if fields == nil {
			return nil
		}
		return fields
	}
	return nil
}
