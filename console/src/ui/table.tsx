// Tables: dense, sorted by the server or here, with a search and pages. On a narrow screen each row becomes a card.

import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { useLasting, useResource } from '../resource.ts';
import type { List, Query } from '../api.ts';
import { count } from '../format.ts';
import { useAsked, usePlace, useTyped } from '../router.ts';
import { Empty, Loading, Refused } from './parts.tsx';
import { Icon } from './icon.tsx';

export interface Column<Row> {
  head: string;
  cell: (row: Row) => ComponentChildren;
  number?: boolean;
  /** The server's name for sorting by it. */
  sort?: string;
  /** Takes what room there is. */
  main?: boolean;
}

interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  id: (row: Row) => string;
  sort?: string;
  onSort?: (sort: string) => void;
}

export function Table<Row>({ label, columns, rows, id, sort, onSort }: TableProps<Row>) {
  return (
    <div class="scrolling" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head key={column.head} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => (
                <td key={column.head} data-head={column.head} class={`${column.number ? 'number' : ''} ${column.main ? 'main' : ''}`}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Head<Row>({ column, sort, onSort }: { column: Column<Row>; sort: string | undefined; onSort: ((sort: string) => void) | undefined }) {
  const name = column.sort;
  const classes = `${column.number ? 'number' : ''} ${column.main ? 'main' : ''}`;
  if (name === undefined || onSort === undefined) return <th scope="col" class={classes}>{column.head}</th>;
  const order = sort === name ? 'ascending' : sort === `-${name}` ? 'descending' : 'none';
  // Numbers are looked for from the largest on.
  const next = order === 'none' ? (column.number ? `-${name}` : name) : order === 'ascending' ? `-${name}` : name;
  return (
    <th scope="col" class={classes} aria-sort={order}>
      <button type="button" class={`sort ${order}`} onClick={() => onSort(next)}>
        {column.head} <Icon name="down" />
      </button>
    </th>
  );
}

/** A search whose text stands in the address. */
export function Search({ label, placeholder, resets }: { label: string; placeholder: string; resets?: string[] }) {
  const { typed, setTyped } = useTyped('search', resets);
  return (
    <label class="search">
      <Icon name="search" />
      <span class="hidden">Search {label}</span>
      <input type="search" value={typed} placeholder={placeholder} onInput={(event) => setTyped(event.currentTarget.value)} />
    </label>
  );
}

interface ListingProps<Row> {
  label: string;
  address: string;
  query?: Query;
  columns: Column<Row>[];
  id: (row: Row) => string;
  empty: ComponentChildren;
  every?: number;
  sort?: string;
  /** What the search looks through. */
  placeholder?: string;
  /** Beside the search. */
  more?: ComponentChildren;
  turn?: number;
  /** One of several lists of a page, which has their search: the names of this one's page and order in the address begin with it. */
  prefix?: string;
}

const PAGE = 50;

/** A list of the server, with a search, pages and sorting; all of them stand in the address. */
export function Listing<Row>({ label, address, query = {}, columns, id, empty, every = 5000, sort: first = 'name', placeholder = 'Search by name', more, turn = 0, prefix = '' }: ListingProps<Row>) {
  const asked = usePlace().query;
  const search = asked.get('search') ?? '';
  const [sort, setSort] = useAsked(`${prefix}sort`, first, [`${prefix}page`]);
  const { offset, setPage } = usePages(PAGE, prefix);
  const resource = useLasting(useResource<List<Row>>(address, { ...query, search, sort, offset, limit: PAGE }, every));
  useEffect(() => {
    if (turn > 0) resource.reload();
  }, [turn]);
  const { data, refusal, loading } = resource;
  return (
    <>
      {(prefix === '' || more) && (
        <div class="tools">
          {prefix === '' && <Search label={label} placeholder={placeholder} />}
          {more}
          {data && <span class="total">{count(data.total)} in all</span>}
        </div>
      )}
      <Refused refusal={refusal} />
      {loading && <Loading />}
      {data && data.items.length > 0 && <Table label={label} columns={columns} rows={data.items} id={id} sort={sort} onSort={setSort} />}
      {data && data.items.length === 0 && data.total === 0 && (search === '' ? empty : <Empty title={`Nothing is found for “${search}”.`} />)}
      {data && data.items.length === 0 && data.total > 0 && <Empty title="The list has no such page any more." />}
      {data && (data.total > PAGE || offset > 0) && <Pager list={data} onPage={setPage} />}
    </>
  );
}

interface PagerProps {
  list: { offset: number; total: number; items: unknown[] };
  /** Of a page. */
  size?: number;
  onPage: (page: string) => void;
}

export function Pager({ list, size = PAGE, onPage }: PagerProps) {
  const { offset, total, items } = list;
  const page = Math.floor(offset / size) + 1;
  const last = Math.max(1, Math.ceil(total / size));
  return (
    <nav class="pager" aria-label="Pages of the list">
      <button type="button" disabled={page === 1} onClick={() => onPage(String(Math.min(page - 1, last)))}>
        Previous
      </button>
      <span>
        {items.length > 0 && `${count(offset + 1)} to ${count(offset + items.length)} of `}
        {count(total)}, page {count(page)} of {count(last)}
      </span>
      <button type="button" disabled={page >= last} onClick={() => onPage(String(page + 1))}>
        Next
      </button>
    </nav>
  );
}

/** Which page the address names, and how many stand before it. */
export function usePages(size = PAGE, prefix = ''): { offset: number; setPage: (page: string) => void } {
  const [page, setPage] = useAsked(`${prefix}page`, '1', []);
  return { offset: Math.max(0, (Number.parseInt(page, 10) || 1) - 1) * size, setPage };
}

/** Rows that are all here, page by page. */
export function PagedTable<Row>({ rows, ...props }: TableProps<Row>) {
  const { offset, setPage } = usePages();
  const items = rows.slice(offset, offset + PAGE);
  return (
    <>
      <Table {...props} rows={items} />
      {(rows.length > PAGE || offset > 0) && <Pager list={{ offset, total: rows.length, items }} onPage={setPage} />}
    </>
  );
}
