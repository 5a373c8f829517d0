//! A reference model of the name space: plain maps, without records or keys. Random operations must give the same answers here and
//! through the dispatch, and the same tree in the end.

use std::collections::BTreeMap;

use types::{Code, Kind};

/// Node numbers of the model; the root is 0.
pub type Node = usize;

#[derive(Clone, Debug)]
pub struct Inode {
    pub kind: Kind,
    pub nlink: u32,
    pub size: u64,
    pub children: BTreeMap<Vec<u8>, Node>,
    pub parent: Node,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: Vec<Option<Inode>>,
}

impl Default for Model {
    fn default() -> Model {
        let root = Inode { kind: Kind::Dir, nlink: 2, size: 0, children: BTreeMap::new(), parent: 0 };
        Model { nodes: vec![Some(root)] }
    }
}

type Outcome<T> = Result<T, Code>;

impl Model {
    pub fn inode(&self, n: Node) -> Outcome<&Inode> {
        self.nodes.get(n).and_then(|i| i.as_ref()).ok_or(Code::NotFound)
    }
    fn inode_mut(&mut self, n: Node) -> &mut Inode {
        self.nodes[n].as_mut().expect("the model only follows nodes that exist")
    }
    fn dir(&self, n: Node) -> Outcome<&Inode> {
        let inode = self.inode(n)?;
        if inode.kind == Kind::Dir { Ok(inode) } else { Err(Code::NotDir) }
    }

    pub fn lookup(&self, parent: Node, name: &[u8]) -> Outcome<Node> {
        check_name(name)?;
        self.dir(parent)?.children.get(name).copied().ok_or(Code::NotFound)
    }

    pub fn make(&mut self, parent: Node, name: &[u8], kind: Kind) -> Outcome<Node> {
        check_name(name)?;
        if self.dir(parent)?.children.contains_key(name) {
            return Err(Code::Exists);
        }
        let nlink = if kind == Kind::Dir { 2 } else { 1 };
        let node = self.nodes.len();
        self.nodes.push(Some(Inode { kind, nlink, size: 0, children: BTreeMap::new(), parent }));
        let dir = self.inode_mut(parent);
        dir.children.insert(name.to_vec(), node);
        dir.nlink += (kind == Kind::Dir) as u32;
        Ok(node)
    }

    pub fn link(&mut self, node: Node, parent: Node, name: &[u8]) -> Outcome<()> {
        check_name(name)?;
        if self.dir(parent)?.children.contains_key(name) {
            return Err(Code::Exists);
        }
        if self.inode(node)?.kind == Kind::Dir {
            return Err(Code::Perm);
        }
        self.inode_mut(parent).children.insert(name.to_vec(), node);
        self.inode_mut(node).nlink += 1;
        Ok(())
    }

    pub fn unlink(&mut self, parent: Node, name: &[u8]) -> Outcome<()> {
        let node = self.lookup(parent, name)?;
        if self.inode(node)?.kind == Kind::Dir {
            return Err(Code::IsDir);
        }
        self.inode_mut(parent).children.remove(name);
        self.drop_link(node);
        Ok(())
    }

    pub fn rmdir(&mut self, parent: Node, name: &[u8]) -> Outcome<()> {
        let node = self.lookup(parent, name)?;
        if self.inode(node)?.kind != Kind::Dir {
            return Err(Code::NotDir);
        }
        if !self.inode(node)?.children.is_empty() {
            return Err(Code::NotEmpty);
        }
        self.inode_mut(parent).children.remove(name);
        self.inode_mut(parent).nlink -= 1;
        self.nodes[node] = None;
        Ok(())
    }

    fn drop_link(&mut self, node: Node) {
        self.inode_mut(node).nlink -= 1;
        if self.inode_mut(node).nlink == 0 {
            self.nodes[node] = None;
        }
    }

    /// Refuses as the kernel does, which checks names and kinds first. Returns the whiteout, if one was requested.
    pub fn rename(
        &mut self,
        from: Node,
        name: &[u8],
        to: Node,
        new_name: &[u8],
        (noreplace, whiteout): (bool, bool),
    ) -> Outcome<Option<Node>> {
        self.dir(from)?;
        self.dir(to)?;
        let node = self.lookup(from, name)?;
        let target = match self.lookup(to, new_name) {
            Ok(t) => Some(t),
            Err(Code::NotFound) => None,
            Err(e) => return Err(e),
        };
        let is_dir = self.inode(node)?.kind == Kind::Dir;
        if target.is_some() && noreplace {
            return Err(Code::Exists);
        }
        if is_dir && self.is_below(to, node) {
            return Err(Code::Invalid);
        }
        if target == Some(node) {
            return Ok(None);
        }
        if let Some(t) = target {
            self.check_victim(is_dir, t)?;
        }
        if let Some(t) = target {
            if is_dir {
                self.inode_mut(to).nlink -= 1;
                self.nodes[t] = None;
            } else {
                self.drop_link(t);
            }
        }
        self.inode_mut(from).children.remove(name);
        self.inode_mut(to).children.insert(new_name.to_vec(), node);
        if is_dir {
            self.inode_mut(from).nlink -= 1;
            self.inode_mut(to).nlink += 1;
            self.inode_mut(node).parent = to;
        }
        whiteout.then(|| self.make(from, name, Kind::Char)).transpose()
    }

    fn check_victim(&self, source_is_dir: bool, target: Node) -> Outcome<()> {
        let t = self.inode(target)?;
        match (source_is_dir, t.kind == Kind::Dir) {
            (true, false) => Err(Code::NotDir),
            (false, true) => Err(Code::IsDir),
            (true, true) if !t.children.is_empty() => Err(Code::NotEmpty),
            _ => Ok(()),
        }
    }

    /// True if `node` is `root` or lies below it.
    fn is_below(&self, mut node: Node, root: Node) -> bool {
        loop {
            if node == root {
                return true;
            }
            if node == 0 {
                return false;
            }
            node = self.inode(node).map(|i| i.parent).unwrap_or(0);
        }
    }
}

fn check_name(name: &[u8]) -> Outcome<()> {
    match name.len() {
        0 => Err(Code::Invalid),
        n if n > types::NAME_MAX => Err(Code::NameTooLong),
        _ => Ok(()),
    }
}
