package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mutant is one small fault that can be planted in a file.
type mutant struct {
	Dir  string // of the package, from the root of the module
	File string // from the root of the module
	Line int
	Kind string
	Text string // the line, without indentation

	from, to int    // bytes of the file
	with     string // in their place
	nth      int    // among the mutants of the file with the same text, from 1
}

// id names a mutant independently of its line number, so that changes elsewhere in the file do not change it.
func (m *mutant) id() string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s\n%s\n%s", m.Text, m.Kind, m.with)
	id := fmt.Sprintf("%s %s %08x", m.File, m.Kind, h.Sum32())
	if m.nth > 1 {
		id += fmt.Sprint(" ", m.nth)
	}
	return id
}

func (m *mutant) String() string { return fmt.Sprintf("%s:%d: %s: %s", m.File, m.Line, m.Kind, m.Text) }

// source returns the file with the fault.
func (m *mutant) source(root string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{raw[:m.from], []byte(m.with), raw[m.to:]}, nil), nil
}

// finder collects the mutants of a file.
type finder struct {
	root, file string
	raw        []byte
	set        *token.FileSet
	found      []*mutant
}

// mutantsOf returns all mutants of a file.
func mutantsOf(root, file string) ([]*mutant, error) {
	raw, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	f := &finder{root: root, file: file, raw: raw, set: token.NewFileSet()}
	tree, err := parser.ParseFile(f.set, file, raw, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range tree.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Name.Name == "String" || fn.Name.Name == "Error" { // texts for people
			continue
		}
		ast.Inspect(fn.Body, f.visit)
		f.errorsToNil(fn.Type, fn.Body)
	}
	seen := map[string]int{}
	for _, m := range f.found {
		id := m.id()
		seen[id]++
		m.nth = seen[id]
	}
	return f.found, nil
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.replace("negate the condition", n.Cond.Pos(), n.Cond.End(), "!("+f.text(n.Cond)+")")
	case *ast.BinaryExpr:
		if with, ok := operators[n.Op]; ok {
			f.replace("replace "+n.Op.String()+" by "+with, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), with)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.replace("drop !", n.OpPos, n.OpPos+1, "")
		}
	case *ast.ExprStmt:
		if _, call := n.X.(*ast.CallExpr); call {
			f.replace("drop the call", n.Pos(), n.End(), "")
		}
	case *ast.DeferStmt:
		f.replace("drop the deferred call", n.Pos(), n.End(), "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.replace("drop the assignment", n.Pos(), n.End(), "")
		}
	case *ast.IncDecStmt:
		f.replace("drop the count", n.Pos(), n.End(), "")
	case *ast.BranchStmt:
		if n.Tok == token.CONTINUE && n.Label == nil {
			f.replace("drop continue", n.Pos(), n.End(), "")
		}
	case *ast.Ident:
		if n.Name == "true" || n.Name == "false" {
			f.replace("invert the constant", n.Pos(), n.End(), strconv.FormatBool(n.Name == "false"))
		}
	case *ast.BasicLit:
		if n.Kind == token.INT {
			f.replace("add one", n.Pos(), n.End(), "("+n.Value+" + 1)")
		}
	case *ast.CaseClause:
		if len(n.List) > 1 { // a case less
			last := n.List[len(n.List)-1]
			f.replace("drop a case", n.List[len(n.List)-2].End(), last.End(), "")
		}
	}
	return true
}

var operators = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*",
	token.AND: "|", token.OR: "&", token.SHL: ">>", token.SHR: "<<",
}

// errorsToNil makes each return of an error return nil.
func (f *finder) errorsToNil(of *ast.FuncType, body *ast.BlockStmt) {
	if of.Results == nil {
		return
	}
	last := of.Results.List[len(of.Results.List)-1]
	if id, ok := last.Type.(*ast.Ident); !ok || id.Name != "error" {
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if _, inner := n.(*ast.FuncLit); inner {
			return false
		}
		r, ok := n.(*ast.ReturnStmt)
		if !ok || len(r.Results) == 0 {
			return true
		}
		value := r.Results[len(r.Results)-1]
		if text := f.text(value); text != "nil" && (len(r.Results) == of.Results.NumFields()) {
			f.replace("return nil as the error", value.Pos(), value.End(), "nil")
		}
		return true
	})
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *finder) text(n ast.Node) string { return string(f.raw[f.offset(n.Pos()):f.offset(n.End())]) }

func (f *finder) replace(kind string, from, to token.Pos, with string) {
	a, b := f.offset(from), f.offset(to)
	begin, end := bytes.LastIndexByte(f.raw[:a], '\n')+1, len(f.raw)
	if i := bytes.IndexByte(f.raw[a:], '\n'); i >= 0 {
		end = a + i
	}
	f.found = append(f.found, &mutant{
		Dir: filepath.Dir(f.file), File: f.file, Line: f.set.Position(from).Line, Kind: kind,
		Text: strings.TrimSpace(string(f.raw[begin:end])), from: a, to: b, with: with,
	})
}
